"""Plugs pulled in the middle of a real deploy: the controller's, the agent's, a second deploy's."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from specops.lab.lab import LabState
from tests.e2e.command import specops, start
from tests.e2e.server import is_speculating, one_token
from tests.e2e.trees import digest_tree

DEPLOY = ("deploy", "--host", "lab", "--threshold", "5", "--yes", "--json")
PHASE_S = 120.0


def await_phase(lab: LabState, phase: str) -> list[dict[str, object]]:
    """The journal, once a step of this phase was started."""
    until = time.monotonic() + PHASE_S
    while time.monotonic() < until:
        # Not rglob: it would walk the copy of a rehearsal, which goes while it does.
        for path in Path(lab.state_dir).glob("*/instances/*/deploys/*/journal.jsonl"):
            entries = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
            if any(entry["entry"] == "starting" and entry["phase"] == phase for entry in entries):
                return entries
        time.sleep(0.1)
    raise AssertionError(f"no step of phase {phase} was started")


def kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_killed_controller_changes_nothing_on_the_host(lab: LabState) -> None:
    controller = start(*DEPLOY)
    await_phase(lab, "ready")
    second = specops(*DEPLOY)
    kill(controller)

    assert second.code == 11, second.err
    assert "since" in second.out

    attached = specops("attach", "--host", "lab", "--json")
    assert attached.code == 0, attached.err + attached.out[-2000:]
    assert attached.entries("closed")[-1]["how"] == "deployed"
    assert [entry["phase"] for entry in attached.entries("starting")][-1] == "smoke"


@pytest.mark.parametrize("phase", ["ready", "smoke"])
def test_killed_agent_is_settled_by_its_guardian(lab: LabState, phase: str) -> None:
    before = digest_tree(Path(lab.package))
    controller = start(*DEPLOY)
    await_phase(lab, phase)
    owner = specops("lock", "show", "--host", "lab", "--json").events("lock")[0]["lock"]
    os.kill(int(owner["pid"]), signal.SIGKILL)
    out, err = controller.communicate(timeout=PHASE_S)

    assert controller.returncode == 20, err + out[-2000:]
    closed = [json.loads(line) for line in out.splitlines() if '"closed"' in line][-1]["entry"]
    assert closed["how"] == "rolled back"
    assert "agent died" in json.dumps(closed["cause"])
    assert digest_tree(Path(lab.package)) == before
    assert one_token(lab.port)
    assert is_speculating(lab.port)
