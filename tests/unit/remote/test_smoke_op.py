"""The smoke operation around a scripted load: real processes, one the server, one the child."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from specops.remote import procs, smoke_op
from specops.remote.context import Context, OpFailed

Json = dict[str, Any]
TIMELINE = {"threshold": 5}
CHILD = """
import json, os, sys, time
spec = json.load(sys.stdin)
for event in spec["script"]:
    if event == "wait":
        time.sleep(30)
    elif event == "env":
        print(json.dumps({"event": "note", "message": json.dumps(dict(os.environ))}), flush=True)
    else:
        print(json.dumps(event), flush=True)
"""


def started(name: str) -> Json:
    return {"event": "check_started", "id": name, "title": f"title of {name}"}


def check(name: str, verdict: str, summary: str = "seen") -> Json:
    return {
        "event": "check",
        "id": name,
        "title": f"title of {name}",
        "verdict": verdict,
        "summary": summary,
        "evidence": {"running": [6]},
        "seconds": 0.1,
    }


def result(*checks: Json, verdict: str) -> Json:
    return {"event": "result", "value": {"verdict": verdict, "checks": list(checks), "timeline": TIMELINE}}


@dataclass
class Stage:
    ctx: Context
    server: subprocess.Popen[bytes]
    log: Path
    journal: list[Json]
    events: list[Json]
    stop: list[str] = field(default_factory=list)

    def run(self, *script: Json | str, **args: Any) -> Json:
        facts = smoke_op.run_step(
            self.ctx,
            {"python": sys.executable, "log": "{deploy_dir}/server.log", "script": list(script), **args},
        )
        return facts

    @property
    def told(self) -> Json:
        """The proof, as whoever follows gets it."""
        (event,) = [event for event in self.events if event["event"] == "smoke"]
        assert event["deploy"] == "d1"
        return dict(event["smoke"])

    def await_start(self) -> None:
        """Until the first check runs; in a thread of its own, so it gives up quietly."""
        until = time.monotonic() + 30
        while not any(event["event"] == "check_started" for event in self.events):
            if time.monotonic() > until:
                return
            time.sleep(0.02)

    def entries(self, kind: str) -> list[Json]:
        return [entry for entry in self.journal if entry["entry"] == kind]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    deploy_dir = tmp_path / "machine" / "instances" / "key" / "deploys" / "d1"
    deploy_dir.mkdir(parents=True)
    agent_zip = tmp_path / "agent.zip"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("__main__.py", CHILD)
    agent_zip.write_bytes(packed.getvalue())
    log = deploy_dir / "server.log"
    log.write_text("The server is fired up and ready to roll!\n")
    server = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    process = procs.read_process(server.pid)
    assert process is not None
    (deploy_dir / "server.json").write_text(
        json.dumps({"pid": server.pid, "start_ticks": process.start_ticks})
    )
    journal: list[Json] = []
    events: list[Json] = []
    stop: list[str] = []
    ctx = Context(
        deploy_id="d1",
        deploy_dir=deploy_dir,
        store_dir=tmp_path / "machine" / "store",
        agent_zip=agent_zip,
        instance={},
        emit=events.append,
        record=lambda entry: journal.append({**entry, "at": time.time()}),
        aborted=lambda: stop[0] if stop else "",
        secrets={"SPECOPS_TEST_KEY": "hush"},
    )
    try:
        yield Stage(ctx, server, log, journal, events, stop)
    finally:
        server.kill()
        server.wait()


def test_checks_are_journaled_and_evidence_is_kept(stage: Stage) -> None:
    one = check("S1", "pass")
    facts = stage.run(started("S1"), one, result(one, verdict="pass"))
    assert facts["verdict"] == "pass"
    assert [(e["id"], e["verdict"]) for e in stage.entries("check")] == [("S1", "pass")]
    assert any(e["event"] == "check" and e["evidence"] == {"running": [6]} for e in stage.events)
    kept = json.loads((stage.ctx.deploy_dir / "smoke.json").read_text())
    assert kept["checks"][0]["evidence"] == {"running": [6]}
    assert (stage.told["verdict"], stage.told["timeline"]) == ("pass", TIMELINE)
    assert stage.told["checks"][0]["id"] == "S1"


def test_a_failed_check_is_named_with_its_reason(stage: Stage) -> None:
    bad = check("S3", "fail", "C=6: still speculating")
    with pytest.raises(OpFailed, match=r"S3 .*C=6: still speculating") as caught:
        stage.run(started("S3"), bad, result(bad, verdict="fail"))
    assert caught.value.code == "smoke-failed"


def test_what_stays_open_is_left_to_the_executor(stage: Stage) -> None:
    unsure = check("S4", "inconclusive", "no data")
    facts = stage.run(unsure, result(unsure, verdict="inconclusive"))
    assert facts["verdict"] == "inconclusive"
    assert "S4" in facts["summary"]
    assert facts["checks"][0]["id"] == "S4"


def test_a_death_is_in_the_journal_at_once_and_fails_the_running_check(stage: Stage) -> None:
    died: list[float] = []

    def kill() -> None:
        stage.await_start()
        time.sleep(0.3)
        died.append(time.time())
        stage.server.kill()
        stage.server.wait()

    threading.Thread(target=kill).start()
    with pytest.raises(OpFailed, match="S3") as caught:
        stage.run(started("S3"), "wait")
    assert caught.value.code == "smoke-failed"
    (verdict,) = stage.entries("verdict")
    assert verdict["at"] - died[0] <= 2.0
    assert [(e["id"], e["verdict"]) for e in stage.entries("check")] == [("S3", "fail")]
    assert stage.told["timeline"] == {}, "a load that hangs is not waited for"


def test_the_root_cause_is_taken_from_the_log_and_not_from_the_load(stage: Stage) -> None:
    with open(stage.log, "a") as log:
        log.write("start\n")

    def crash() -> None:
        stage.await_start()
        time.sleep(0.3)
        with open(stage.log, "a") as log:
            log.write(
                "[2026-11-30 05:00:00] Scheduler hit an exception: Traceback (most recent call last):\n"
                '  File "worker.py", line 1, in forward\n'
                "ValueError: too many values to unpack (expected 2)\n\n"
            )

    threading.Thread(target=crash).start()
    lost = check("S3", "fail", "6 of 6 requests failed: connection reset")
    with pytest.raises(OpFailed, match="too many values to unpack"):
        stage.run(started("S3"), lost, result(lost, verdict="fail"))
    assert stage.entries("verdict")
    assert (stage.told["verdict"], stage.told["timeline"]) == ("fail", TIMELINE), "its last words"
    assert "too many values" in stage.told["checks"][-1]["summary"]


def test_an_abort_ends_the_load(stage: Stage) -> None:
    stage.stop.append("asked to")
    with pytest.raises(OpFailed, match="asked to"):
        stage.run(started("S1"), "wait")


def test_a_child_that_dies_says_what_it_said(stage: Stage) -> None:
    with pytest.raises(OpFailed, match="no result"):
        stage.run(started("S1"))


def test_the_key_reaches_the_load_by_environment_and_nothing_else_does(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNRELATED", "1")
    one = check("S1", "pass")
    stage.run("env", result(one, verdict="pass"), api_key_env="SPECOPS_TEST_KEY")
    note = next(event for event in stage.events if event["event"] == "note")
    environment = json.loads(note["message"])
    assert environment["SPECOPS_TEST_KEY"] == "hush"
    assert "UNRELATED" not in environment
    assert environment["HOME"] == os.environ["HOME"]


def test_a_hang_is_explained_by_what_its_processes_do(stage: Stage) -> None:
    stage.server.send_signal(signal.SIGSTOP)
    hung = check("S1", "fail", "no token for 20 s from 1 of 1 running requests: the server hangs")
    with pytest.raises(OpFailed, match=r"the server hangs \(process \d+ is stopped \(SIGSTOP\)\)"):
        stage.run(started("S1"), hung, result(hung, verdict="fail"))
    assert "SIGSTOP" in stage.entries("check")[0]["summary"]
