"""Stopping: everything that is the server's goes, nothing else does."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from specops.remote import capture, gpus, procs, restore, stop
from specops.remote.context import Context, OpFailed

from .servers import await_true, deploying, free_port, serving

STOP = {"drain_s": 0.5, "term_s": 0.5}


def test_a_server_that_ignores_term_and_left_its_session_is_stopped(tmp_path: Path, ctx: Context) -> None:
    stubborn = serving(tmp_path, STANDIN_IGNORE_TERM="1", STANDIN_NEW_SESSION="1")
    with stubborn as stand, deploying(ctx) as (on, _):
        (child,) = procs.children_of(stand.pid)
        ticks = stand.start_ticks
        facts = stop.stop(on, {"pid": stand.pid, "start_ticks": ticks, "port": stand.port, **STOP})
        assert facts["stopped"] == sorted([stand.pid, child])
        assert not procs.lives(stand.pid, ticks)
        assert child not in {pid for pid, process in procs.scan_processes().items() if process.living}
        assert procs.port_is_free(stand.port)
        again = stop.stop(on, {"pid": stand.pid, "start_ticks": ticks, "port": stand.port, **STOP})
        assert again["stopped"] == []


def test_a_server_may_end_its_requests_before_anything_else_is_told_to_end(
    tmp_path: Path, ctx: Context
) -> None:
    for takes_s, allowed_s, drained in (("0.7", 60.0, True), ("60", 0.2, False)):
        with serving(tmp_path, STANDIN_DRAIN_S=takes_s) as stand, deploying(ctx) as (on, _):
            ask = {"pid": stand.pid, "start_ticks": stand.start_ticks, "port": stand.port}
            stop.stop(on, {**ask, "drain_s": allowed_s, "term_s": 0.2})
            log = stand.log.read_text()
            assert ("drained" in log) == drained
            assert not drained or "a worker was told to end" not in log
            assert procs.port_is_free(stand.port)


def test_memory_of_a_gpu_is_waited_for_and_its_holder_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An nvidia-smi that shows a dead process for two looks more, and one that shows it for ever."""
    smi, looks = tmp_path / "nvidia-smi", tmp_path / "looks"
    smi.write_text(f"#!/bin/sh\necho >> {looks}\n[ $(wc -l < {looks}) -gt 2 ] || echo '4711, 512'\n")
    smi.chmod(0o755)
    monkeypatch.setattr(gpus, "find_smi", lambda: str(smi))
    stop.wait_for_gpus({4711})
    assert looks.read_text().count("\n") == 3
    stop.wait_for_gpus({4712})
    smi.write_text("#!/bin/sh\necho '4711, 512'\n")
    monkeypatch.setattr(stop, "GPU_S", 0.3)
    with pytest.raises(OpFailed, match=r"still held by stopped processes \[4711\]") as error:
        stop.wait_for_gpus({4711, 4712})
    assert error.value.code == "gpu_held"


def test_what_escaped_with_a_gpu_is_stopped_and_what_nothing_shows_to_be_ours_is_not(
    tmp_path: Path, ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process in the launcher's session that lost its parent, then one of a session of its own."""
    monkeypatch.setattr(procs, "DEVICES", str(tmp_path))
    device = tmp_path / "nvidia0"
    device.touch()
    code = f"import time; held = open({str(device)!r}); print('open', flush=True); time.sleep(600)"
    with serving(tmp_path, STANDIN_ESCAPED=str(device)) as stand, deploying(ctx) as (on, _):
        ask = {"pid": stand.pid, "start_ticks": stand.start_ticks, "port": stand.port, **STOP}
        (escaped,) = await_true(lambda: [pid for pid in procs.scan_processes() if procs.devices_of(pid)])
        assert escaped not in procs.children_of(stand.pid)
        with subprocess.Popen(
            [sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, start_new_session=True
        ) as stranger:
            try:
                assert stranger.stdout is not None
                assert stranger.stdout.readline() == b"open\n"
                with pytest.raises(OpFailed, match=rf"pid {stranger.pid} of \w+: .*nvidia0") as error:
                    stop.stop(on, ask)
                assert error.value.code == "gpu_held"
                assert procs.lives(stand.pid, stand.start_ticks)
                assert not (on.deploy_dir / stop.MARK).exists()
                process = procs.read_process(stranger.pid)
                assert process is not None
                # the plan names it, and whoever lets the plan run has read that
                facts = stop.stop(on, {**ask, "holders": [list(process.key)]})
                assert {stand.pid, escaped} <= set(facts["stopped"])
                assert not procs.devices_of(escaped)
                assert stranger.poll() is None
            finally:
                stranger.kill()


def test_orphans_of_a_launcher_that_died_are_found_by_what_was_captured(tmp_path: Path, ctx: Context) -> None:
    with serving(tmp_path, STANDIN_NEW_SESSION="1") as stand, deploying(ctx) as (on, _):
        (child,) = procs.children_of(stand.pid)
        args = {"pid": stand.pid, "start_ticks": stand.start_ticks, "port": stand.port}
        capture.capture(on, args)
        os.kill(stand.pid, signal.SIGKILL)
        stand.process.wait()
        assert procs.read_process(child) is not None
        assert stop.stop(on, {**args, **STOP})["stopped"] == [child]


def test_a_stranger_on_the_port_is_named_and_left_alone(tmp_path: Path, ctx: Context) -> None:
    with serving(tmp_path) as stand, deploying(ctx) as (on, _):
        with pytest.raises(OpFailed) as none:
            stop.stop(on, {"pid": None, "port": stand.port})
        with pytest.raises(OpFailed) as other:
            # a pid that is not the server: the server restarted after the plan was made
            stop.stop(on, {"pid": stand.pid, "start_ticks": 1, "port": stand.port, **STOP})
        for error in (none.value, other.value):
            assert error.code == "port_taken"
            assert f"pid {stand.pid} of" in error.message
        assert procs.lives(stand.pid, stand.start_ticks)
        assert not (on.deploy_dir / stop.MARK).exists()


def test_nothing_was_serving_is_restored_as_a_free_port(ctx: Context) -> None:
    port = free_port()
    with deploying(ctx) as (on, _):
        capture.capture(on, {"pid": None, "start_ticks": None, "port": port})
        assert "nothing" in restore.restore(on, {"port": port})["serving"]["line"]
        with socket.socket() as squatter:
            squatter.bind(("127.0.0.1", port))
            squatter.listen()
            with pytest.raises(OpFailed, match="should be free"):
                restore.restore(on, {"port": port})


def test_the_old_server_comes_back_as_it_was(tmp_path: Path, ctx: Context) -> None:
    with (
        serving(tmp_path, "--api-key", "sk-hidden", MY_TOKEN="hush-hush") as stand,
        deploying(ctx) as (on, _),
    ):
        args = {"pid": stand.pid, "start_ticks": stand.start_ticks, "port": stand.port}
        facts = capture.capture(on, args)
        assert facts["healthy"]
        assert "sk-hidden" not in str(facts)
        assert (on.vault.stat().st_mode & 0o777) == 0o600
        argv, cwd = procs.read_argv(stand.pid), procs.read_link(stand.pid, "cwd")
        # never stopped: it is left as it is
        assert "never stopped" in restore.restore(on, {"port": stand.port})["serving"]["line"]
        stop.stop(on, {**args, **STOP})
        back = restore.restore(on, {"port": stand.port, "ready": {"progress_s": 20, "cap_s": 40}})["serving"]
        assert back["pid"] != stand.pid
        assert back["healthy"]
        assert procs.read_argv(back["pid"]) == argv
        assert procs.read_link(back["pid"], "cwd") == cwd
        environ = procs.read_environ(back["pid"]) or {}
        assert environ["MY_TOKEN"] == "hush-hush"
        assert environ[procs.COOKIE] == "d1-old"
        again = restore.restore(on, {"port": stand.port, "ready": {"progress_s": 20, "cap_s": 40}})["serving"]
        assert again["pid"] == back["pid"]


def test_a_server_that_did_not_answer_before_needs_not_answer_again(tmp_path: Path, ctx: Context) -> None:
    with serving(tmp_path, STANDIN_NO_TOKEN="1") as stand, deploying(ctx) as (on, _):
        args = {"pid": stand.pid, "start_ticks": stand.start_ticks, "port": stand.port}
        assert not capture.capture(on, args)["healthy"]
        stop.stop(on, {**args, **STOP})
        assert "as before" in restore.restore(on, {"port": stand.port})["serving"]["line"]


def test_what_could_not_be_started_again_is_refused(tmp_path: Path, ctx: Context) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    with serving(folder, "--model-path", "/no/such/model") as stand, deploying(ctx) as (on, _):
        args = {"pid": stand.pid, "start_ticks": stand.start_ticks, "port": stand.port}
        with pytest.raises(OpFailed, match="model folder is gone"):
            capture.capture(on, args)
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        with pytest.raises(OpFailed, match="working folder is gone") as error:
            capture.capture(on, args)
        assert error.value.code == "cannot_restore"
        with pytest.raises(OpFailed, match="changed after the plan"):
            capture.capture(on, {**args, "start_ticks": 1})


def test_a_process_that_appears_while_killing_is_killed_too(tmp_path: Path) -> None:
    with serving(tmp_path) as stand, serving(tmp_path) as second:
        keys = {(stand.pid, stand.start_ticks)}
        more = {(second.pid, second.start_ticks)}
        looks: list[int] = []

        def find() -> set[tuple[int, int]]:
            """The second one is not there yet when first looked for."""
            looks.append(1)
            wanted = keys | (more if len(looks) > 1 else set())
            return {key for key in wanted if procs.lives(*key)}

        os.kill(stand.pid, signal.SIGSTOP)
        gone = stop.stop_processes(find, launcher=None, drain_s=0, term_s=0.3)
        assert gone == keys | more
        await_true(lambda: not procs.lives(*next(iter(more))))
