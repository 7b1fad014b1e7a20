"""Keeps a server's log bounded while it runs: copy and truncate, by a small process that ends with it.

The server writes the file itself, with O_APPEND: if the keeper dies the log grows, and nothing else happens.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import procs
from .context import Context

Json = Any
CAP = 256 * 1024 * 1024
"""Bytes at which a log is moved to `<log>.1`."""
KEEP = 64 * 1024 * 1024
HEAD = 1024 * 1024
"""Of the bytes that are kept: how the server started stays readable for as long as it runs."""
TICK_S = 30.0
PIECE = 1024 * 1024
NAME = "child-keeper"


def start(ctx: Context, note: dict[str, Json]) -> int | None:
    """Start a keeper for the server that `note` describes. Its pid; None where there can be none."""
    if not ctx.agent_zip.is_file():
        return None
    words = [sys.executable, "-I", "-S", "-B", str(ctx.agent_zip), NAME]
    try:
        child = subprocess.Popen(
            [*words, str(note["log"]), str(note["pid"]), str(note["start_ticks"])],
            env={"PATH": os.defpath},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None
    procs.CHILDREN[child.pid] = child
    return child.pid


def main(argv: Sequence[str]) -> int:
    """`child-keeper LOG PID START_TICKS`: until that server ends."""
    log, pid, ticks = Path(argv[0]), int(argv[1]), int(argv[2])
    watch = select.poll()
    with contextlib.suppress(OSError):  # a kernel without pidfd: its end is seen at the next tick
        watch.register(os.pidfd_open(pid), select.POLLIN)
    while procs.lives(pid, ticks):
        cap(log)
        watch.poll(TICK_S * 1000)
    return 0


def cap(log: Path, *, limit: int = CAP, keep: int = KEEP, head: int = HEAD) -> bool:
    """Move what is in a log above `limit` to `<log>.1` and empty it. True where it was.

    `<log>.1` holds at most `keep` bytes: the very first ones of the server, and the last. Lines that are
    written between the last look and the truncation are lost; that is microseconds.
    """
    try:
        with open(log, "r+b") as file:
            if os.fstat(file.fileno()).st_size <= limit:
                return False
            _move(file.fileno(), log.with_name(f"{log.name}.1"), keep, head)
            return True
    except OSError:
        return False


def _move(source: int, target: Path, keep: int, head: int) -> None:
    temp = target.with_name(f".{target.name}.{os.getpid()}")
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        size = os.fstat(source).st_size
        first = _first(target, source, head)
        os.write(fd, first)
        at = max(size - (keep - len(first)), 0)
        os.write(fd, f"\n[… the log up to its byte {at} was cut here …]\n".encode())
        while True:
            at = _copy(source, fd, at)
            if os.fstat(source).st_size <= at:
                break
        os.rename(temp, target)
        os.ftruncate(source, 0)
    finally:
        os.close(fd)
        with contextlib.suppress(OSError):
            temp.unlink()


def _first(target: Path, source: int, head: int) -> bytes:
    """What the server said first: kept from the earlier copy, else from the log itself."""
    with contextlib.suppress(OSError), open(target, "rb") as earlier:
        return earlier.read(head)
    return os.pread(source, head, 0)


def _copy(source: int, target: int, at: int) -> int:
    while piece := os.pread(source, PIECE, at):
        os.write(target, piece)
        at += len(piece)
    return at
