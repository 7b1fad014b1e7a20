"""A supervised server is stopped and started through its supervisor: a real supervisord here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from specops.remote import capture, launch, procs, restore, state, stop, supervised, supervisor
from specops.remote.context import Context, OpFailed

from .servers import argv_of, await_true, deploying, free_port, launch_spec, sweep

STOP = {"drain_s": 0, "term_s": 2}
SETTINGS = """
[supervisord]
nodaemon=true
user={user}
logfile={folder}/daemon.log
pidfile={folder}/daemon.pid
[unix_http_server]
file={folder}/s.sock
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
[supervisorctl]
serverurl=unix://{folder}/s.sock
[program:web]
command={command}
environment=STANDIN_MARK="{folder}"
autorestart=true
startsecs=0
stdout_logfile={folder}/web.log
redirect_stderr=true
"""


@contextmanager
def supervising(folder: Path, port: int) -> Iterator[int]:
    """supervisord, its tools beside it, with a stand-in that it restarts whenever that ends; its pid."""
    package = pytest.importorskip("supervisor").__path__[0]
    bins = folder / "bin"
    bins.mkdir()
    for tool in ("supervisord", "supervisorctl"):
        script = bins / tool
        script.write_text(
            f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(Path(package).parent)!r})\n"
            f"from supervisor.{tool} import main\nmain()\n"
        )
        script.chmod(0o755)
    config = folder / "supervisord.conf"
    command = " ".join(argv_of(port))
    config.write_text(SETTINGS.format(user=state.user_name(), folder=folder, command=command))
    daemon = subprocess.Popen([sys.executable, str(bins / "supervisord"), "-c", str(config)], cwd=folder)
    try:
        await_true(lambda: procs.read_listeners(port))
        yield daemon.pid
    finally:
        daemon.terminate()
        daemon.wait(30)
        sweep(str(folder))


def server_on(port: int) -> int:
    (pid,) = procs.port_holders(procs.scan_processes(), port)
    return pid


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short: a unix socket's path has 107 bytes at most."""
    path = Path(tempfile.mkdtemp(prefix="sup"))
    yield path
    shutil.rmtree(path)


def test_supervisord_stops_it_and_starts_it_again_and_never_behind_our_back(
    folder: Path, ctx: Context
) -> None:
    port = free_port()
    with supervising(folder, port) as daemon, deploying(ctx, port=port) as (on, _):
        pid = server_on(port)
        process = procs.read_process(pid)
        assert process is not None
        boss = supervisor.find_supervisor(procs.scan_processes(), pid)
        assert boss is not None
        assert (boss["kind"], boss["name"], bool(boss["control"])) == ("supervisord", "web", True)
        args = {"pid": pid, "start_ticks": process.start_ticks, "port": port}
        capture.capture(on, args)
        assert pid in stop.stop(on, {**args, **STOP})["stopped"]
        assert procs.port_is_free(port)
        # ours runs from its environment, and does not believe to be supervised
        spec = {**launch_spec(port), "env": {"base": "old_server"}}
        note = launch.launch(on, {"launch": spec})
        await_true(lambda: procs.read_listeners(port))
        assert supervisor.find_supervisor(procs.scan_processes(), note["pid"]) is None
        stop.kill(on, {"cookie": "d1", "port": port})
        back = restore.restore(on, {"port": port, "ready": {"progress_s": 60, "cap_s": 120}})["serving"]
        assert back["pid"] == server_on(port)
        assert daemon in {procs.scan_processes()[back["pid"]].ppid}
        again = restore.restore(on, {"port": port, "ready": {"progress_s": 60, "cap_s": 120}})["serving"]
        assert again["pid"] == back["pid"]
        # a rollback of a later deploy starts it there too, and its undo stops it there
        stop.kill(on, {"cookie": "d1-old", "port": port})
        (on.deploy_dir / "old-server.json").unlink()
        launch.launch(on, {"launch": {"vault": "d1/old_server", "port": port, "cookie": "d2"}})
        await_true(lambda: procs.read_listeners(port))
        assert procs.scan_processes()[server_on(port)].ppid == daemon
        stop.kill(on, {"cookie": "d2", "port": port})
        assert procs.port_is_free(port)


def test_a_supervisor_that_does_not_obey_is_told_with_the_command_to_try(tmp_path: Path) -> None:
    refusing = tmp_path / "systemctl"
    refusing.write_text("#!/bin/sh\necho Access denied >&2\nexit 4\n")
    refusing.chmod(0o755)
    with pytest.raises(OpFailed, match="Access denied") as error:
        supervised.stop({"stop": [str(refusing), "stop", "sglang.service"]}, 1)
    assert error.value.code == "supervisor_refused"
    assert error.value.next_command.endswith("systemctl stop sglang.service")
    with pytest.raises(OpFailed, match="names no process"):
        supervised.start({"start": ["/bin/true"], "pid": ["/bin/echo", "0"]})


def test_a_unit_of_systemd_is_driven_by_whoever_may(monkeypatch: pytest.MonkeyPatch) -> None:
    scan = procs.scan_processes()
    pid = os.getpid()
    monkeypatch.setattr(shutil, "which", lambda name, path: f"/usr/bin/{name}")
    control = supervised.find_control(
        {"kind": "systemd --user", "name": "sglang.service", "how": ""}, scan, pid
    )
    assert control is not None
    assert control["stop"] == ["/usr/bin/systemctl", "--user", "stop", "sglang.service"]
    assert control["pid"][-1] == "sglang.service"
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    for kind in ("systemd", "systemd --user", "a restart loop", "container"):
        assert supervised.find_control({"kind": kind, "name": "x.service", "how": ""}, scan, pid) is None
