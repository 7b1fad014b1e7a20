"""The sweep's verb around a scripted load: real processes, one the server, one the child."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from specops.remote import load_child, procs, state, sweep_op
from specops.remote.context import OpFailed

Json = dict[str, Any]
CHILD = """
import json, sys, time
for event in json.load(sys.stdin)["script"]:
    time.sleep(event) if isinstance(event, int) else print(json.dumps(event), flush=True)
"""
CRASH = (
    "[2026-11-30 05:00:00] Scheduler hit an exception: Traceback (most recent call last):\n"
    '  File "worker.py", line 1, in forward\n'
    "ValueError: too many values to unpack (expected 2)\n\n"
)


def level(at_once: int) -> Json:
    return {"event": "level", "C": at_once, "arm": "as it is", "repeat": 1, "throughput": 9.0, "taints": []}


@dataclass
class Stage:
    params: Json
    instance: state.Instance
    server: subprocess.Popen[bytes]
    log: Path
    events: list[Json] = field(default_factory=list)

    def run(self, *script: Json | int, at_level: Callable[[], None] | None = None) -> Json:
        """`at_level` happens once the first level was told."""
        told = threading.Event()

        def emit(event: Json) -> None:
            self.events.append(event)
            if event["event"] == "level":
                told.set()

        if at_level is not None:
            threading.Thread(target=lambda: (told.wait(60), at_level()), daemon=True).start()
        self.params["sweep"]["script"] = list(script)
        return sweep_op.run(self.params, emit)

    @property
    def kept(self) -> list[Json]:
        return [json.loads(path.read_text()) for path in self.instance.sweeps.glob("*.json")]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("__main__.py", CHILD)
    (tmp_path / "agent.zip").write_bytes(packed.getvalue())
    reference = {"state": str(tmp_path), "port": 1, "python": sys.executable, "root": str(tmp_path)}
    instance = state.open_instance(reference)
    (instance.deploys / "d1").mkdir(parents=True)
    log = tmp_path / "server.log"
    log.write_text("The server is fired up and ready to roll!\n")
    server = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
    process = procs.read_process(server.pid)
    assert process is not None
    note = {"pid": server.pid, "start_ticks": process.start_ticks}
    (instance.deploys / "d1" / "server.json").write_text(json.dumps(note))
    sweep = {"url": "http://127.0.0.1:9", "cookie": "d1", "log": str(log), "about": {"host": "box"}}
    params = {"instance": reference, "sweep": sweep, "agent_zip": str(tmp_path / "agent.zip")}
    try:
        yield Stage(params, instance, server, log)
    finally:
        server.kill()
        server.wait()


def test_a_finished_sweep_is_kept_on_the_host(stage: Stage) -> None:
    done = stage.run(level(1), {"event": "result", "value": {"levels": [level(1)], "ended": "finished"}})
    assert (done["ended"], "cause" in done) == ("finished", False)
    (kept,) = stage.kept
    assert kept["about"] == {"host": "box"}
    assert [each["C"] for each in kept["levels"]] == [1]
    assert kept["boot_id"] == state.boot_id()


def test_a_sweep_has_longer_than_the_smoke_test_whose_keys_it_comes_with(stage: Stage) -> None:
    stage.params["sweep"]["budget_s"] = 1 - load_child.GRACE_S
    done = stage.run(level(1), 2, {"event": "result", "value": {"levels": [level(1)], "ended": "finished"}})
    assert done["ended"] == "finished"


def test_a_server_that_dies_while_requests_hang_is_named_and_finished_levels_stay(stage: Stage) -> None:
    def die() -> None:
        with stage.log.open("a") as log:
            log.write(CRASH)
        stage.server.kill()
        stage.server.wait()

    done = stage.run(level(1), 60, at_level=die)
    assert done["ended"].startswith("a level was cut short; the server died: ")
    assert "too many values to unpack" in done["ended"]
    assert done["cause"]["traceback"]
    assert [each["C"] for each in stage.kept[0]["levels"]] == [1]


def test_a_sweep_ends_with_whoever_asked_for_it_and_its_finished_levels_are_kept(stage: Stage) -> None:
    stage.params["sweep"]["script"] = [level(1), 60]
    result = sweep_op.run(stage.params, stage.events.append, lambda: bool(stage.events))
    assert result["ended"] == "interrupted: nobody listens to this sweep any more"
    assert "cause" not in result
    assert [each["C"] for each in stage.kept[0]["levels"]] == [1]
    with pytest.raises(OpFailed, match="interrupted"):
        sweep_op.run(stage.params, stage.events.append, lambda: True)


def test_the_death_of_a_server_that_somebody_else_started_is_told_too(stage: Stage) -> None:
    (stage.instance.deploys / "d1" / "server.json").unlink()
    stage.params["sweep"] |= {"cookie": None, "log": None, "pid": stage.server.pid}

    def die() -> None:
        stage.server.kill()
        stage.server.wait()

    done = stage.run(level(1), 60, at_level=die)
    assert f"the launcher (pid {stage.server.pid}) ended" in done["ended"]
    assert done["cause"]["id"] == "PROCESS_DIED"


def test_the_loads_own_words_come_first_where_it_has_some(stage: Stage) -> None:
    said = {"levels": [level(1)], "ended": "C=2: ServerDisconnectedError"}
    stage.server.kill()
    stage.server.wait()
    done = stage.run(level(1), {"event": "result", "value": said})
    assert done["ended"].startswith("C=2: ServerDisconnectedError; the server died: ")


def test_a_load_without_any_level_is_an_error_that_says_why(stage: Stage) -> None:
    with pytest.raises(OpFailed, match="ended with code 0 and no result"):
        stage.run()
    assert stage.kept == []
