"""The next model's weights are read into the page cache while the old server still serves."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import models
from .activity import bytes_read
from .context import Context

Json = Any
PIECE = 8 * 1024 * 1024
TELL_S = 2.0
SHARE = 0.6
"""Of the memory that is available: what does not fit would push out what was read before."""


def warm(ctx: Context, args: dict[str, Json]) -> dict[str, Json]:
    """{bytes, from_disk, seconds, whole, saved_s, summary}. Never fails a deploy: it only reads ahead."""
    files = [file for path in args["models"] for file in _weights(str(path))]
    total = sum(_size(file) for file in files)
    room = int(available() * SHARE)
    began, before = time.monotonic(), bytes_read(os.getpid())
    done = _read_all(ctx, files, min(total, room), began + float(args["max_s"]))
    seconds = time.monotonic() - began
    cold = max(0, bytes_read(os.getpid()) - before)
    saved_s = round(seconds * min(1.0, cold / done), 1) if done else 0.0
    facts = {
        "bytes": done,
        "from_disk": cold,
        "seconds": round(seconds, 1),
        "whole": done >= total,
        "saved_s": saved_s,
    }
    return {**facts, "summary": _words(facts, total)}


def _words(facts: dict[str, Json], total: int) -> str:
    read, cold = facts["bytes"] >> 20, facts["from_disk"] >> 20
    if not total:
        return "no weights were found to read ahead"
    part = "" if facts["whole"] else f" of {total >> 20}"
    return (
        f"{read}{part} MiB of weights are in memory; {cold} came from disk, {facts['saved_s']} s of the load"
    )


def _weights(path: str) -> list[Path]:
    folder = models.find_folder(path)
    return models.find_weights(folder) if folder else []


def _read_all(ctx: Context, files: Iterable[Path], limit: int, until: float) -> int:
    """Bytes read; less than `limit` where time is over, the deploy was aborted, or a file cannot be read."""
    done, began = 0, time.monotonic()
    told = began
    buffer = bytearray(PIECE)
    for file in files:
        try:
            handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            while count := os.readv(handle, [buffer]):
                done += count
                now = time.monotonic()
                if done >= limit or now > until or ctx.aborted():
                    return done
                if now - told > TELL_S:
                    told = now
                    _tell(ctx, done, limit, now - began)
        except OSError:
            continue
        finally:
            os.close(handle)
    return done


def _tell(ctx: Context, done: int, limit: int, elapsed_s: float) -> None:
    ctx.emit(
        {
            "event": "progress",
            "phase": "rehearse",
            "milestone": "reading the weights ahead",
            "fraction": round(done / limit, 3),
            "eta_s": None,
            "elapsed_s": round(elapsed_s, 1),
            "activity": f"{done >> 20} MiB",
        }
    )


def available() -> int:
    """Bytes that can be had without swapping."""
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
