"""Who else uses the install that is to be changed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from specops.lab.processes import free_port
from specops.remote import procs, stop
from specops.remote.context import Context
from specops.remote.users import find_ranks, find_users

SLEEP = "import time; time.sleep(600)"
WORDS = ("-c", SLEEP, "sglang.launch_server", "--api-key", "sk-planted", "--port")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An install in a virtual environment of its own."""
    package = tmp_path / "venv/lib/python3.11/site-packages/sglang"
    package.mkdir(parents=True)
    (tmp_path / "venv/bin").mkdir()
    (tmp_path / "venv/bin/python").symlink_to(os.path.realpath(sys.executable))
    return package


@pytest.fixture
def three(root: Path) -> Iterator[list[int]]:
    """A server of the install, one that finds it by its module path, and one of another install."""
    own = str(root.parents[3] / "bin/python")
    path = {"PYTHONPATH": str(root.parent)}
    started = [
        subprocess.Popen([python, "-S", *WORDS, port], env=env)
        for python, port, env in ((own, "31", {}), (sys.executable, "32", path), (sys.executable, "33", {}))
    ]
    yield [each.pid for each in started]
    for each in started:
        each.kill()
        each.wait()


def test_servers_of_the_install_are_found(root: Path, three: list[int]) -> None:
    found = find_users(procs.scan_processes(), os.path.realpath(root), set())
    assert [(user["pid"], user["port"]) for user in found] == [(three[0], "31"), (three[1], "32")]
    assert "sk-planted" not in str(found)
    assert [u["pid"] for u in find_users(procs.scan_processes(), str(root), {three[0]})] == [three[1]]


RANK = """
import mmap, time
file = open({!r}, "r+b")
loaded = mmap.mmap(file.fileno(), 0)
print(flush=True)
time.sleep(600)
"""


def test_ranks_of_a_dead_launcher_are_found_by_what_they_have_loaded_and_stopped(root: Path) -> None:
    library = root.parent / "torch.so"
    library.write_bytes(b"x" * 4096)
    code = RANK.format(str(library))
    rank = subprocess.Popen(
        ["sglang::scheduler_TP1", "-c", code], executable=sys.executable, stdout=subprocess.PIPE
    )
    assert rank.stdout is not None
    try:
        rank.stdout.readline()
        scan = procs.scan_processes()
        assert find_ranks(scan, str(root), {rank.pid}) == []
        assert find_ranks(scan, str(root.parents[1] / "elsewhere/sglang"), set()) == []
        (found,) = find_ranks(scan, str(root), set())
        assert (found["pid"], found["title"]) == (rank.pid, "sglang::scheduler_TP1")
        reaper = threading.Thread(target=rank.wait)
        reaper.start()
        args = {
            "pid": None,
            "port": free_port(),
            "term_s": 5,
            "ranks": [[found["pid"], found["start_ticks"]]],
        }
        assert stop.stop(cast("Context", None), args)["stopped"] == [rank.pid]
        reaper.join(10)
        assert rank.returncode == -signal.SIGTERM
        assert stop.stop(cast("Context", None), args)["stopped"] == [], "again, after a crash"
    finally:
        rank.kill()
        rank.stdout.close()
