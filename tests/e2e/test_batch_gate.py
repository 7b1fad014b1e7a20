"""The batch gate on a release without one: proven on both sides, taken back, kept out when it is broken."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from specops.lab import lab as labs
from specops.lab.lab import LabState
from tests.e2e.older import CHECKS, V2, at, broken_gate, editable_checkout, git, older_lab, vendor_edits
from tests.e2e.server import can_bind, owner_of_port
from tests.e2e.trees import digest_tree
from tests.pristine import renew

pytestmark = pytest.mark.lab
DEPLOY = ("deploy", "--threshold", "5", "--set", "smoke.budget_s=1800", "--yes", "--accept-unproven")
"""Whatever proof.json says of the gate's bytes of today: this test is one more proof. And however busy the
machine is: the checks wait for steps."""
COPY = ("activation=copy", *V2, "smoke.checks=[S0, S1, S3]")
NIGHTLY = "0.5.13.dev7+gabc1234"


@pytest.fixture(scope="module")
def module_lab() -> Iterator[LabState]:
    with older_lab() as state:
        yield state


@pytest.fixture
def older(module_lab: LabState) -> LabState:
    """Nothing serving, nothing that specops remembers, and the wheel's own bytes, whatever a test left."""
    labs.stop_serving(module_lab)
    shutil.rmtree(module_lab.state_dir, ignore_errors=True)
    renew(module_lab)
    return module_lab


def gate_of(lab: LabState) -> dict[str, object]:
    info = requests.get(f"http://127.0.0.1:{lab.port}/get_server_info", timeout=30).json()
    found: dict[str, object] = info["internal_states"][0]["speculative_gate"]
    return found


def test_v1_is_proven_a_broken_one_is_taken_back_and_so_is_all_of_it(older: LabState, tmp_path: Path) -> None:
    package = Path(older.package)
    pristine = digest_tree(package)
    broken = broken_gate(older, tmp_path)

    good = at(older, *DEPLOY)
    assert good.code == 0, good.err + good.out[-3000:]
    assert good.events("plan")[0]["plan"]["notes"][0].startswith(
        "gate: batch-gate: patch batch-gate, made for"
    )
    assert {entry["id"]: entry["verdict"] for entry in good.entries("check")} == dict.fromkeys(CHECKS, "pass")
    assert gate_of(older)["threshold"] == 5
    patched, server = digest_tree(package), owner_of_port(older.port)
    assert patched != pristine

    bad = at(older, *DEPLOY, "--patches", str(broken), "--patch", "broken-gate")
    assert bad.code == 20, bad.err + bad.out[-3000:]
    verdicts = {entry["id"]: entry["verdict"] for entry in bad.entries("check")}
    assert (verdicts["S1"], verdicts["S3"]) == ("pass", "fail")
    assert bad.entries("closed")[-1]["how"] == "rolled back"
    assert digest_tree(package) == patched
    assert owner_of_port(older.port) not in (None, server)
    assert gate_of(older)["state"] == "open"

    back = at(older, "rollback", "--yes")
    assert back.code == 0, back.err + back.out[-3000:]
    assert digest_tree(package) == pristine
    assert can_bind(older.port), "nothing was serving before"


def test_v2_on_a_developers_checkout_by_rebase_and_drop(older: LabState, tmp_path: Path) -> None:
    """With edits of their own, at a version that is none, installed editable: patched in place."""
    own, edits = digest_tree(Path(older.package)), vendor_edits(Path(older.package))
    host = editable_checkout(older, tmp_path, NIGHTLY, edits)
    data = {"XDG_DATA_HOME": str(tmp_path / "data")}
    checkout = tmp_path / "checkout"

    refused = at(host, "deploy", "--threshold", "5", "--yes", settings=V2, env=data)
    assert refused.code == 13, refused.out
    assert f"specops patch rebase --host {host.name}" in refused.events("error")[0]["next_command"]
    rebased = at(host, "patch", "rebase", env=data)
    assert rebased.code == 0, rebased.err + rebased.out
    made = rebased.events("rebase")[0]["rebase"]
    assert (made["version"], made["proof"]) == (NIGHTLY, "unproven")

    done = at(host, *DEPLOY, settings=V2, env=data)
    assert done.code == 0, done.err + done.out[-3000:]
    assert done.events("plan")[0]["plan"]["summary"]["patches"] == [made["id"]]
    assert {entry["id"]: entry["verdict"] for entry in done.entries("check")} == dict.fromkeys(CHECKS, "pass")
    assert set(git(checkout, "diff", "--name-only").split()) == {f"python/sglang/{path}" for path in edits}
    again = at(host, *DEPLOY[:-1], settings=V2, env=data)
    assert again.code == 0, again.err + again.out[-2000:]
    assert not again.entries("starting"), "it is trusted here now, and nothing is to be done"

    dropped = at(host, "patch", "drop", "--yes", settings=(*V2, "smoke.checks=[S0]"), env=data)
    assert dropped.code == 0, dropped.err + dropped.out[-3000:]
    assert git(checkout, "status", "--porcelain") == ""
    assert digest_tree(Path(older.package)) == own


def test_a_read_only_install_is_served_from_a_copy(older: LabState) -> None:
    package = Path(older.package)
    pristine = digest_tree(package)
    with read_only(package):
        refused = at(older, *DEPLOY)
        assert refused.code == 13, refused.out
        assert "activation=copy" in refused.events("error")[0]["next_command"]

        done = at(older, *DEPLOY, settings=COPY)
        assert done.code == 0, done.err + done.out[-3000:]
        proof = next(entry["facts"] for entry in done.entries("done") if "ranks" in (entry["facts"] or {}))
        assert {"launcher", "sglang::scheduler"} <= {rank["title"] for rank in proof["ranks"]}
        assert {rank["file"] for rank in proof["ranks"]} == {proof["copy"]}
        assert Path(proof["copy"]).is_relative_to(older.state_dir)
        assert gate_of(older)["threshold"] == 5
        again = at(older, *DEPLOY, settings=COPY)
        assert again.code == 0, again.err
        assert not again.entries("starting"), "it is so already"

        back = at(older, "rollback", "--yes")
        assert back.code == 0, back.err + back.out[-3000:]
        assert not [name for entry in back.entries("starting") if "file" in (name := entry["name"])]
        assert can_bind(older.port)
    assert digest_tree(package) == pristine


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """A bind mount of the folder over itself: not even root can write to it."""
    if subprocess.run(["mount", "--bind", folder, folder], capture_output=True).returncode:
        pytest.skip("mounting is not permitted here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True)
        yield
    finally:
        subprocess.run(["umount", folder], check=True)
