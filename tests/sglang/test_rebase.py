"""A rebase onto a vendor's tree of a real release, as its users type it: by the agent, without a server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from specops.config.patch import load_patches
from tests.e2e.command import Ran, specops
from tests.e2e.older import RELEASE, vendor_edits
from tests.sglang.wheels import unpack

GATE = load_patches()["batch-gate"]
HOOK = "srt/speculative/eagle_worker_v2.py"
NIGHTLY = "0.5.13.dev7+gabc1234"


class Host:
    """This machine, without SSH, with an install that has the release's files that the gate hooks."""

    def __init__(self, folder: Path, editable: bool = False) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        (site,) = (folder / "venv").glob("lib/python3*/site-packages")
        paths = [file.path for file in GATE.releases[RELEASE].files if file.diff]
        tree = folder / "checkout" / "python" if editable else site
        self.package = unpack(RELEASE, tree, "__init__.py", "_version.py", *paths)
        if editable:
            (site / "editable.pth").write_text(f"{tree}\n")
        for name in ("target", "draft"):
            (folder / name).mkdir()
            (folder / name / "config.json").write_text("{}")
            (folder / name / "model.safetensors").write_bytes(b"")
        entry = {
            "address": "local", "python": str(folder / "venv" / "bin" / "python"), "playbook": "lab-older",
            "state": str(folder / "state"), "vars": {"model": "hub/target", "draft": "hub/draft"},
            "instances": [{"name": "it", "port": 31377}],
        }  # fmt: skip
        (folder / "inventory.yaml").write_text(json.dumps({"hosts": {"box": entry}}))

    def run(self, *words: str) -> Ran:
        env = {"XDG_DATA_HOME": str(self.folder / "data"), "SPECOPS_LAB_HOME": str(self.folder / "lab")}
        inventory = str(self.folder / "inventory.yaml")
        return specops(*words, "--host", "box", "--inventory", inventory, "--json", env=env)

    def write(self, files: dict[str, bytes]) -> None:
        for path, content in files.items():
            (self.package / path).write_bytes(content)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_twenty_edits_move_the_hooks_and_one_inside_of_a_hook_is_a_conflict(host: Host) -> None:
    vendor = vendor_edits(host.package)
    assert sum(content.count(b"# vendor: edit") for content in vendor.values()) == 20
    diff = next(file.diff for file in GATE.releases[RELEASE].files if file.path == HOOK)
    line = next(
        line[1:]
        for line in (GATE.folder / str(diff)).read_bytes().split(b"\n")[3:]
        if line.startswith(b" ") and vendor[HOOK].count(line[1:] + b"\n") == 1
    )

    host.write({**vendor, HOOK: vendor[HOOK].replace(line + b"\n", line + b"  # ours\n")})
    refused = host.run("patch", "rebase")
    assert refused.code == 13, refused.out + refused.err
    message = refused.events("error")[0]["message"]
    # The hunk itself: the edited line of the install, the release's and the patch's, between markers.
    shown = message.split("<<<<<<< the install")[1]
    theirs, ours, patched = re.split(r"\n(?:\|{7} the release|={7})\n", shown)
    assert (line + b"  # ours").decode() in theirs
    assert line.decode() in ours
    assert "batch_gate" in patched.split(">>>>>>> the patch")[0]
    assert "1 have no place" in message
    assert "specops patch new ID --like batch-gate" in refused.events("error")[0]["next_command"]
    assert not list((host.folder / "data").rglob("patch.yaml"))

    host.write(vendor)
    drifted = host.run("plan")
    assert drifted.code == 13, drifted.out + drifted.err
    assert "has drifted" in drifted.events("error")[0]["message"]
    assert drifted.events("error")[0]["next_command"].startswith("specops patch rebase batch-gate --host box")
    rebased = host.run("patch", "rebase")
    assert rebased.code == 0, rebased.err + rebased.out
    made = rebased.events("rebase")[0]["rebase"]
    assert (made["release"], made["proof"], made["hunks"] > 15, made["moved"] > 5) == (
        RELEASE, "unproven", True, True,
    )  # fmt: skip

    unproven = host.run("plan")
    assert unproven.code == 13
    assert "is unproven here" in unproven.events("error")[0]["message"]
    plan = host.run("plan", "--accept-unproven")
    assert plan.code == 0, plan.err + plan.out[-2000:]
    shown = plan.events("plan")[0]["plan"]
    assert shown["summary"]["patches"] == [made["id"]]
    assert {each["path"] for each in shown["diffs"]} >= set(vendor)
    for path, content in vendor.items():
        assert (host.package / path).read_bytes() == content, (
            "neither a rebase nor a plan touches the install"
        )


def test_an_editable_checkout_between_releases_is_patched_in_place(tmp_path: Path) -> None:
    host = Host(tmp_path, editable=True)
    version = (host.package / "_version.py").read_bytes()
    host.write({"_version.py": version.replace(RELEASE.encode(), NIGHTLY.encode())})
    refused = host.run("plan")
    assert refused.code == 13, refused.out + refused.err
    error = refused.events("error")[0]
    assert f"SGLang {NIGHTLY} with topk 4 has no gate that works" in error["message"]
    assert error["next_command"].startswith("specops patch rebase --host box")

    rebased = host.run("patch", "rebase")
    assert rebased.code == 0, rebased.err + rebased.out
    made = rebased.events("rebase")[0]["rebase"]
    assert GATE.releases[made["release"]].files == GATE.releases[RELEASE].files, "0.5.12 has the same ones"
    assert (made["version"], made["moved"]) == (NIGHTLY, 0)
    plan = host.run("plan", "--accept-unproven")
    assert plan.code == 0, plan.err + plan.out[-2000:]
    shown = plan.events("plan")[0]["plan"]
    assert shown["summary"]["patches"] == [made["id"]]
    swap = next(step["do"]["args"] for step in shown["steps"] if step["do"]["op"] == "files.swap")
    paths = {file["path"] for file in swap["files"]}
    assert str(host.package / HOOK) in paths
    assert all(Path(path).is_relative_to(tmp_path / "checkout") for path in paths)
