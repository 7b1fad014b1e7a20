"""A rebase onto a vendor's tree of a real release, as its users type it: by the agent, without a server."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from specops.config.patch import load_patches
from tests.e2e.command import Ran, specops
from tests.e2e.older import RELEASE, vendor_edits
from tests.sglang.wheels import unpack

GATE = load_patches()["batch-gate"]
HOOK = "srt/speculative/eagle_worker_v2.py"


class Host:
    """This machine, without SSH, with an install that has the release's files that the gate hooks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        site = folder / "venv" / "lib" / "python3.11" / "site-packages"
        paths = [file.path for file in GATE.releases[RELEASE].files if file.diff]
        self.package = unpack(RELEASE, site, "__init__.py", "_version.py", *paths)
        (folder / "venv" / "bin").mkdir()
        (folder / "venv" / "bin" / "python").symlink_to(sys.executable)
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
    for words in ("1 have no place", "<<<<<<< the install, from line", (line + b"  # ours").decode()):
        assert words in message
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
