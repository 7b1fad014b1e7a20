"""What of a server's log is kept as evidence: its beginning, the root cause, every rank, its end."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from .diagnose import TRACEBACK, TRACEBACK_LINES, match_line
from .logscan import rank_of

Json = Any
FILE_CAP = 1024 * 1024
HEAD_CAP = 64 * 1024
WINDOW_CAP = 192 * 1024
SCAN_CAP = 32 * 1024 * 1024
"""Bytes at the end of a log in which the root cause is looked for."""
SCAN_S = 2.0
LINES_BEFORE, LINES_AFTER, LINES_BEYOND = 25, 45, 5
LINE_CAP = 600
RANKS = 64


def read_log(path: Path) -> str | None:
    """Head, the bytes around the first root cause, and the tail; whole where it is short."""
    data = _end_of(path, SCAN_CAP)
    if data is None:
        return None
    if len(data) <= FILE_CAP and _size(path) <= FILE_CAP:
        return data.decode("utf-8", "replace")
    pieces = [head_of(path, HEAD_CAP)]
    at = find_root(data)
    if at is not None:
        pieces.append(data[max(0, at - WINDOW_CAP // 2) : at + WINDOW_CAP // 2])
    pieces.append(data[-(FILE_CAP - sum(map(len, pieces))) :])
    return "\n[…]\n".join(piece.decode("utf-8", "replace") for piece in pieces)


def read_window(path: Path) -> Json:
    """{before, root, after}: the line that names the cause, and what is around it; None without one."""
    data = _end_of(path, SCAN_CAP)
    at = find_root(data) if data else None
    if data is None or at is None:
        return None
    before = _lines(data[max(0, at - WINDOW_CAP) : at])[-LINES_BEFORE:]
    root, *after = _lines(data[at : at + WINDOW_CAP])
    return {
        "before": before,
        "root": root,
        "after": after[: max(LINES_AFTER, _end_of_traceback(root, after))],
    }


def _end_of_traceback(root: str, after: list[str]) -> int:
    """How many of the lines after `root` lead to the exception that ends its traceback; 0 where it opens
    none. A worker's has some sixty, and the last one is what it is about."""
    if TRACEBACK not in root:
        return 0
    for number, line in enumerate(after[:TRACEBACK_LINES]):
        if line and not line.startswith((" ", "\t")):
            return number + 1 + LINES_BEYOND
    return 0


def read_ranks(path: Path) -> Json:
    """Rank -> {lines, last}: which one fell silent first, and where. None where no line names a rank."""
    data = _end_of(path, SCAN_CAP // 4)
    found: dict[str, dict[str, Json]] = {}
    for line in _lines(data or b""):
        rank = rank_of(line)
        if rank is not None and (rank in found or len(found) < RANKS):
            seen = found.setdefault(rank, {"lines": 0, "last": ""})
            seen["lines"] += 1
            seen["last"] = line
    return {rank: found[rank] for rank in sorted(found)} or None


def head_of(path: Path, cap: int) -> bytes:
    """Its first bytes; those of the copy where the log was capped (keeper.py)."""
    for name in (path.with_name(f"{path.name}.1"), path):
        try:
            with open(name, "rb") as file:
                return file.read(cap)
        except OSError:
            continue
    return b""


def find_root(data: bytes) -> int | None:
    """Offset of the first line that names a cause; None where there is none, or the time is over."""
    offset, until = 0, time.monotonic() + SCAN_S
    for number, line in enumerate(data.splitlines(keepends=True)):
        found = match_line(line[:4096].decode("utf-8", "replace"))
        if found is not None and found.role in ("root", "header"):
            return offset
        if number % 1000 == 0 and time.monotonic() > until:
            return None
        offset += len(line)
    return None


def _lines(data: bytes) -> list[str]:
    return [line[:LINE_CAP] for line in data.decode("utf-8", "replace").splitlines()]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _end_of(path: Path, cap: int) -> bytes | None:
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - cap))
            return file.read(cap)
    except OSError:
        return None
