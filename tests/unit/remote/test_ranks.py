"""Several tensor-parallel ranks under watch: the one that died is named, not the ones that missed it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from specops.remote import procs
from specops.remote.watch import ServerWatch

from .servers import await_true

LAUNCHER = """
import subprocess, sys, time
for rank in range(2):
    subprocess.Popen(
        [f"sglang::scheduler_TP{rank}", "-S", "-c", "import time; time.sleep(600)"], executable=sys.executable
    )
time.sleep(600)
"""
LAST_WORDS_OF_THE_OTHER = (
    "[2026-11-30 05:00:01 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    '  File "/x/scheduler.py", line 1, in run_scheduler_process\n'
    "RuntimeError: [../gloo/transport/tcp/pair.cc:525] Read error [127.0.0.1]: Connection reset by peer\n\n"
    "[2026-11-30 05:00:01] Received sigquit from a child process. It usually means the child failed.\n"
)


@pytest.fixture
def launcher() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-S", "-c", LAUNCHER], start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def rank(launcher: int, number: int) -> int | None:
    title = f"sglang::scheduler_TP{number}"
    return next((pid for pid in procs.children_of(launcher) if procs.read_argv(pid)[:1] == [title]), None)


def test_the_rank_that_died_is_the_cause(launcher: subprocess.Popen[bytes], tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("")
    await_true(lambda: rank(launcher.pid, 0) and rank(launcher.pid, 1))
    process = procs.read_process(launcher.pid)
    assert process is not None
    watch = ServerWatch(log, launcher.pid, process.start_ticks)
    assert watch.poll() is None
    dying = rank(launcher.pid, 1)
    assert dying is not None
    os.kill(dying, signal.SIGKILL)
    log.write_text(LAST_WORDS_OF_THE_OTHER)
    verdict = await_true(watch.poll)
    assert verdict.id == "PROCESS_DIED"
    assert verdict.rank == "TP1"
    assert f"scheduler_TP1 (pid {dying}) died" in verdict.message
