from __future__ import annotations

import os
import resource
import socket
from pathlib import Path

import pytest

from specops.remote import capture, launch, procs, stop
from specops.remote.context import Context, OpFailed

from .servers import await_true, deploying, free_port, launch_spec, serving


def test_a_launched_server_is_marked_detached_and_inherits_nothing(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEAK", "from the agent")
    port = free_port()
    with deploying(ctx) as (on, _):
        lock = os.open(ctx.deploy_dir, os.O_RDONLY)
        facts = launch.launch(on, {"launch": launch_spec(port, MINE="{deploy_dir}/x")})
        await_true(lambda: procs.read_listeners(port))
        environ = procs.read_environ(facts["pid"]) or {}
        assert "LEAK" not in environ
        assert environ["MINE"] == f"{ctx.deploy_dir}/x"
        process = procs.read_process(facts["pid"])
        assert process is not None
        assert process.sid == process.pgid == facts["pid"]
        open_files = [
            procs.read_link(facts["pid"], f"fd/{fd}") for fd in os.listdir(f"/proc/{facts['pid']}/fd")
        ]
        assert str(ctx.deploy_dir) not in open_files
        os.close(lock)
        assert procs.read_link(facts["pid"], "fd/0") == "/dev/null"
        log = ctx.deploy_dir / "server.log"
        assert (log.stat().st_mode & 0o777) == 0o600
        assert "fired up" in log.read_text()
        assert procs.carriers(procs.scan_processes(), "d1") == {
            facts["pid"],
            *procs.children_of(facts["pid"]),
        }
        with pytest.raises(OpFailed, match="is held by pid"):
            launch.launch(on, {"launch": launch_spec(port)})
        stopped = stop.kill(on, {"cookie": "d1", "port": port})["stopped"]
        assert facts["pid"] in stopped
        assert stop.kill(on, {"cookie": "d1", "port": port})["stopped"] == []
        assert procs.port_is_free(port)


def test_kill_finds_a_worker_that_outlived_its_launcher_and_left_the_session(ctx: Context) -> None:
    port = free_port()
    with deploying(ctx) as (on, _):
        facts = launch.launch(on, {"launch": launch_spec(port, STANDIN_NEW_SESSION="1")})
        await_true(lambda: procs.read_listeners(port))
        (child,) = procs.children_of(facts["pid"])
        os.kill(facts["pid"], 9)
        await_true(lambda: not procs.lives(facts["pid"], facts["start_ticks"]))
        assert stop.kill(on, {"cookie": "d1", "port": port})["stopped"] == [child]


def test_the_environment_of_the_old_server_is_the_base(tmp_path: Path, ctx: Context) -> None:
    with serving(tmp_path, KEPT="1", GONE="1") as stand, deploying(ctx) as (on, _):
        limits = resource.prlimit(stand.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(stand.pid, resource.RLIMIT_NOFILE, (limits[0] - 1, limits[1]))
        capture.capture(on, {"pid": stand.pid, "start_ticks": stand.start_ticks, "port": stand.port})
        spec = launch_spec(stand.port)
        spec["env"] = {"base": "old_server", "set": {"NEW": "2"}, "unset": ["GONE"], "path": ["/front"]}
        start = launch.resolve(on, spec)
        assert start.env["KEPT"] == "1"
        assert start.env["NEW"] == "2"
        assert "GONE" not in start.env
        assert start.env["PATH"].startswith("/front:")
        assert start.env[procs.COOKIE] == "d1"
        assert start.limits[str(resource.RLIMIT_NOFILE)][0] == limits[0] - 1
        whole = launch.resolve(on, {"vault": "d1/old_server", "port": stand.port, "cookie": "d2"})
        assert whole.argv == procs.read_argv(stand.pid)
        assert whole.cwd == str(tmp_path)
        with pytest.raises(OpFailed, match="holds no 'd9/old_server'"):
            launch.resolve(on, {"vault": "d9/old_server", "port": 1, "cookie": "x"})


def test_what_cannot_be_started_says_so(ctx: Context) -> None:
    port = free_port()
    with deploying(ctx) as (on, _):
        spec = {**launch_spec(port), "argv": ["/no/such/python"]}
        with pytest.raises(OpFailed, match="is no program on this host"):
            launch.launch(on, {"launch": spec})
        with pytest.raises(OpFailed, match="working folder does not exist"):
            launch.launch(on, {"launch": {**launch_spec(port), "cwd": "/no/such"}})
        with socket.socket() as squatter:
            squatter.bind(("127.0.0.1", port))
            squatter.listen()
            with pytest.raises(OpFailed) as error:
                launch.launch(on, {"launch": launch_spec(port)})
            assert error.value.code == "port_taken"
