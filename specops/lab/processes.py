"""The lab's processes, found by what they carry and never by their names."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from specops.lab.state import COOKIE

TERM_WAIT_S = 8.0
KILL_WAIT_S = 10.0


STARTED: list[subprocess.Popen[bytes]] = []
"""What this process started and leaves running; kept, so that each is reaped where it ends before us."""


@atexit.register
def reap() -> None:
    for process in STARTED:
        process.poll()


def start_detached(
    argv: Sequence[str], env: Mapping[str, str], log: Path, cwd: Path
) -> subprocess.Popen[bytes]:
    """In a session of its own, without our descriptors; its output is appended to `log`."""
    STARTED[:] = [process for process in STARTED if process.poll() is None]
    with open(log, "ab") as out:
        process = subprocess.Popen(
            argv,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    STARTED.append(process)
    return process


def carrying(folder: Path) -> list[int]:
    """Pids whose environment says that they belong to the lab in `folder`, zombies left out."""
    mark = f"{COOKIE}={folder}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0") and not is_zombie(entry):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def is_zombie(entry: Path) -> bool:
    return (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"


def stop_carrying(folder: Path) -> list[int]:
    """TERM, wait, KILL, until none is left. Returns the pids that outlived even that."""
    for number, wait_s in ((signal.SIGTERM, TERM_WAIT_S), (signal.SIGKILL, KILL_WAIT_S)):
        until = time.monotonic() + wait_s
        while (left := carrying(folder)) and time.monotonic() < until:
            for pid in left:
                _signal(pid, number)
            time.sleep(0.2)
        if not left:
            return []
    return carrying(folder)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        return


def free_port(wish: int | None = None) -> int:
    """`wish` where it can be bound, else any."""
    for port in (wish, 0):
        if port is None:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError("no port on 127.0.0.1 can be bound")
