"""What a killed server leaves in /dev/shm goes with it; what others have, or had before, stays."""

from __future__ import annotations

import json
import mmap
import multiprocessing
import os
import signal
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from specops.remote import launch, procs, ready, shm, stop
from specops.remote.context import Context, OpFailed

from .servers import await_true, deploying, free_port, launch_spec, serving

STOP = {"drain_s": 0, "term_s": 0.5}


@pytest.fixture
def names() -> Iterator[tuple[str, str]]:
    """Two paths below /dev/shm; whatever is left of them is removed."""
    pair = (f"{shm.FOLDER}specops-test-{uuid.uuid4().hex}", f"{shm.FOLDER}specops-test-{uuid.uuid4().hex}")
    yield pair
    for name in pair:
        Path(name).unlink(missing_ok=True)


def all_mapped(pid: int, names: tuple[str, ...]) -> bool:
    return any(shm.mapped_by([child]) >= set(names) for child in procs.children_of(pid))


def test_a_stopped_servers_memory_goes_unless_somebody_else_has_it(
    tmp_path: Path, ctx: Context, names: tuple[str, str]
) -> None:
    with serving(tmp_path, STANDIN_SHM=json.dumps(names)) as stand, deploying(ctx) as (on, _):
        await_true(lambda: all_mapped(stand.pid, names), seconds=60)
        with open(names[1], "r+b") as file, mmap.mmap(file.fileno(), 0):
            place = {"pid": stand.pid, "start_ticks": stand.start_ticks, "port": stand.port}
            assert stop.stop(on, {**place, **STOP})["shared_memory"] == [names[0]]
            assert not Path(names[0]).exists()
            assert Path(names[1]).exists()


def test_semaphores_named_after_its_processes_go_with_it(tmp_path: Path, ctx: Context) -> None:
    """joblib's: closed and so not mapped any more, and left behind by whoever is killed."""
    with serving(tmp_path) as stand, deploying(ctx) as (on, _):
        own = Path(f"{shm.FOLDER}sem.loky-{stand.pid}-{uuid.uuid4().hex[:8]}")
        others = Path(f"{shm.FOLDER}sem.loky-{os.getpid()}-{uuid.uuid4().hex[:8]}")
        try:
            for path in (own, others):
                path.touch(mode=0o600)
            place = {"pid": stand.pid, "start_ticks": stand.start_ticks, "port": stand.port}
            assert stop.stop(on, {**place, **STOP})["shared_memory"] == [str(own)]
            assert others.exists()
        finally:
            own.unlink(missing_ok=True)
            others.unlink(missing_ok=True)


def test_a_server_that_died_by_itself_is_cleared_away_too(ctx: Context, names: tuple[str, str]) -> None:
    port = free_port()
    with deploying(ctx) as (on, _):
        note = launch.launch(on, {"launch": launch_spec(port, STANDIN_SHM=json.dumps(names))})
        await_true(lambda: all_mapped(note["pid"], names), seconds=60)
        ready.await_server(on, {"port": port, "cookie": "d1", "ready": {"progress_s": 20, "cap_s": 40}})
        os.killpg(note["pid"], signal.SIGKILL)
        procs.CHILDREN[note["pid"]].wait()
        await_true(lambda: not procs.carriers(procs.scan_processes(), "d1"))
        assert stop.kill(on, {"cookie": "d1", "port": port})["shared_memory"] == sorted(names)


def test_what_was_there_before_the_server_stays(names: tuple[str, str]) -> None:
    Path(names[0]).write_bytes(b"")
    Path(names[0]).chmod(0o600)
    made = os.stat(names[0]).st_ctime
    assert shm.remove_unused([names[0]], since=made + 60) == []
    assert shm.remove_unused([names[0]], since=made) == [names[0]]


def test_a_server_that_died_while_it_loaded_is_cleared_away_too(ctx: Context, names: tuple[str, str]) -> None:
    port = free_port()
    with deploying(ctx) as (on, _):
        environment = {"STANDIN_SHM": json.dumps(names), "STANDIN_LOAD_S": "600"}
        note = launch.launch(on, {"launch": launch_spec(port, **environment)})
        await_true(lambda: all_mapped(note["pid"], names), seconds=60)
        with ThreadPoolExecutor() as pool:
            clocks = {"progress_s": 60, "cap_s": 90}
            wait = pool.submit(ready.await_server, on, {"port": port, "cookie": "d1", "ready": clocks})
            await_true(lambda: shm.kept(on.deploy_dir, "d1") == set(names), seconds=60)
            os.killpg(note["pid"], signal.SIGKILL)
            with pytest.raises(OpFailed, match="the server failed"):
                wait.result()
        await_true(lambda: not procs.carriers(procs.scan_processes(), "d1"))
        assert stop.kill(on, {"cookie": "d1", "port": port})["shared_memory"] == sorted(names)


def test_what_a_process_makes_while_it_is_being_stopped_goes_with_it(
    ctx: Context, names: tuple[str, str]
) -> None:
    port = free_port()
    with deploying(ctx) as (on, _):
        environment = {"STANDIN_SHM": json.dumps(names[:1]), "STANDIN_LATE_SHM": names[1]}
        note = launch.launch(on, {"launch": launch_spec(port, **environment)})
        await_true(lambda: all_mapped(note["pid"], names[:1]), seconds=60)
        assert stop.kill(on, {"cookie": "d1", "port": port})["shared_memory"] == sorted(names)


def test_a_semaphore_is_its_makers() -> None:
    """It is mapped there under a name that is gone (glibc makes it first, and names it then)."""
    made = multiprocessing.get_context("spawn").Lock()
    (name,) = (path for path in shm.mapped_by([os.getpid()]) if "/sem.mp-" in path)
    assert shm.remove_unused([name], since=0.0) == []
    del made
    assert not Path(name).exists()


def test_what_was_made_and_left_between_two_looks_goes_too(ctx: Context) -> None:
    """Of a process that died at once: nobody saw whose it was, but nobody has it, and only such make it."""
    names = [Path(f"{shm.FOLDER}sem.mp-{uuid.uuid4().hex[:8]}") for _ in range(3)]
    older, left, other = names
    port = free_port()
    try:
        older.touch(mode=0o600)
        time.sleep(2.1)
        with deploying(ctx) as (on, _):
            launch.launch(on, {"launch": launch_spec(port)})
            left.touch(mode=0o600)
            other.touch(mode=0o600)
            other.write_bytes(b"semaphore")
            with open(other, "r+b") as file, mmap.mmap(file.fileno(), 0):
                gone = stop.kill(on, {"cookie": "d1", "port": port})["shared_memory"]
        assert str(left) in gone
        assert [name.exists() for name in names] == [True, False, True]
    finally:
        for name in names:
            name.unlink(missing_ok=True)
