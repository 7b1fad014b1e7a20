"""A live systemd user manager: scopes for what we start, units of what others run (`make live-systemd`)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specops.remote import capture, launch, procs, ready, restore, stop, supervisor
from specops.remote.context import Context

from .servers import argv_of, await_true, deploying, free_port, launch_spec, sweep

UNIT = "specops-live.service"
FILE = """
[Service]
ExecStart={command}
Environment=STANDIN_MARK={mark}
Restart=always
RestartSec=0
"""
CLOCKS = {"progress_s": 60, "cap_s": 120}


def ask_manager(*words: str) -> str:
    done = subprocess.run(["systemctl", "--user", *words], capture_output=True, text=True, check=False)
    return done.stdout


def test_what_we_start_is_in_a_scope_of_its_own_and_leaves_none(ctx: Context) -> None:
    port = free_port()
    with deploying(ctx) as (on, _):
        note = launch.launch(on, {"launch": {**launch_spec(port), "scope": "user"}})
        ready.await_server(on, {"port": port, "cookie": "d1", "ready": CLOCKS})
        assert procs.port_holders(procs.scan_processes(), port) == {note["pid"]}, "the pid that we noted"
        assert supervisor.find_scope(note["pid"]) == "user"
        assert "specops-d1.scope" in ask_manager("list-units", "--type=scope", "--no-legend", "--plain")
        assert supervisor.find_supervisor(procs.scan_processes(), note["pid"]) is None
        stop.kill(on, {"cookie": "d1", "port": port})
    assert procs.port_is_free(port)
    await_true(lambda: "specops-d1.scope" not in ask_manager("list-units", "--all", "--no-legend", "--plain"))


@contextmanager
def unit(port: int, mark: str) -> Iterator[None]:
    folder = Path(os.environ["XDG_RUNTIME_DIR"]) / "systemd" / "user"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / UNIT).write_text(FILE.format(command=" ".join(argv_of(port)), mark=mark))
    ask_manager("daemon-reload")
    ask_manager("start", UNIT)
    try:
        await_true(lambda: procs.read_listeners(port))
        yield
    finally:
        ask_manager("stop", UNIT)
        sweep(mark)


def test_a_unit_is_stopped_and_started_by_its_manager_and_never_behind_our_back(
    ctx: Context, tmp_path: Path
) -> None:
    port = free_port()
    with unit(port, str(tmp_path)), deploying(ctx, port=port) as (on, _):
        (pid,) = procs.port_holders(procs.scan_processes(), port)
        process = procs.read_process(pid)
        assert process is not None
        boss = supervisor.find_supervisor(procs.scan_processes(), pid)
        assert boss is not None
        assert (boss["kind"], boss["name"], bool(boss["control"])) == ("systemd --user", UNIT, True)
        args = {"pid": pid, "start_ticks": process.start_ticks, "port": port}
        capture.capture(on, args)
        assert pid in stop.stop(on, {**args, "drain_s": 0, "term_s": 2})["stopped"]
        assert ask_manager("is-active", UNIT).strip() == "inactive"
        assert procs.port_is_free(port), "it would restart it at once"
        back = restore.restore(on, {"port": port, "ready": CLOCKS})["serving"]
        assert {back["pid"]} == procs.port_holders(procs.scan_processes(), port)
        assert ask_manager("show", "--property=MainPID", "--value", UNIT).strip() == str(back["pid"])
