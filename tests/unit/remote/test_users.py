"""Who else uses the install that is to be changed."""

from __future__ import annotations

import contextlib
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
from specops.remote import members, procs, stop
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


def start_rank(library: Path, *, orphan: bool) -> int:
    """Its pid; an orphan's parent is gone by then."""
    words = ["-c", RANK.format(str(library))]
    launch = (  # a program of somebody's: its own command line does not name what it runs
        "import subprocess, sys; name = 'sgl' + 'ang::scheduler_TP1';"
        " p = subprocess.Popen([name, *sys.argv[2:]], executable=sys.argv[1],"
        " stdout=subprocess.PIPE); p.stdout.readline(); print(p.pid, flush=True)"
    )
    more = "" if orphan else "; p.wait()"
    argv = [sys.executable, "-c", launch + more, sys.executable, *words]
    parent = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout as told:
        pid = int(told.readline())
    if orphan:
        parent.wait()
    else:
        threading.Thread(target=parent.wait, daemon=True).start()
    return pid


def test_ranks_of_a_dead_launcher_are_found_by_what_they_have_loaded_and_stopped(root: Path) -> None:
    library = root.parent / "torch.so"
    library.write_bytes(b"x" * 4096)
    lost, engine = start_rank(library, orphan=True), start_rank(library, orphan=False)
    try:
        scan = procs.scan_processes()
        assert find_ranks(scan, str(root.parents[1] / "elsewhere/sglang"), set()) == []
        (found,) = find_ranks(scan, str(root), set())
        assert (found["pid"], found["title"]) == (lost, "sglang::scheduler_TP1"), (
            "not that of a living program"
        )
        assert find_ranks(scan, str(root), {lost}) == []
        ranks = [[found["pid"], found["start_ticks"]]]
        args = {"pid": None, "port": free_port(), "term_s": 5, "ranks": ranks}
        assert stop.stop(cast("Context", None), args)["stopped"] == [lost]
        assert not procs.lives(lost, found["start_ticks"])
        assert stop.stop(cast("Context", None), args)["stopped"] == [], "again, after a crash"
        assert procs.read_process(engine) is not None
    finally:
        for pid in (lost, engine):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("argv", "is_server"),
    [
        (["/opt/sglang/bin/python", "-m", "sglang.launch_server", "--port", "1"], True),
        (["/usr/bin/python3.12", "-B", "/opt/x/sglang/launch_server.py"], True),
        (["/opt/x/bin/sglang", "serve", "--model-path", "/m"], True),
        (["/opt/x/bin/python3", "/opt/x/bin/sglang", "serve", "--model-path", "/m"], True),
        (["sglang::scheduler"], True),
        (["/opt/sglang/bin/python", "-I", "/proc/self/fd/5", "keep", "/data/sglang/state/server.log"], False),
        (["/opt/sglang/bin/python", "-c", '"""Imports\nsglang.srt and ends."""', "/s/rehearsal"], False),
        (["/opt/sglang/bin/python", "train.py"], False),
        (["/usr/bin/vim", "sglang.py"], False),
    ],
)
def test_an_environment_called_sglang_makes_no_server_of_what_runs_in_it(
    argv: list[str], is_server: bool
) -> None:
    """specops' own log keeper, in the lab's environment, was shown as another server on port 30000."""
    assert members.is_sglang(argv) is is_server
