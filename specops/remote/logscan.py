"""Reading a growing server log: what is new, and how far the load has come."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

LINE_CAP = 64 * 1024
"""Bytes kept of one line; SGLang prints all its arguments in one, and a binary blob may have no end."""
READ_CAP = 8 * 1024 * 1024
"""Bytes read in one call, so that a flood in the log cannot delay the watch."""

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_BREAK = re.compile(rb"[\r\n]+")


@dataclass
class LogReader:
    """Incremental reader: survives a missing file, truncation, replacement, binary junk and endless lines."""

    path: Path
    position: int = 0
    """Byte offset of what was read."""
    _fd: int = -1
    _partial: bytes = b""
    _dropping: bool = False

    def read_lines(self, *, final: bool = False) -> list[str]:
        """Complete new lines (progress bars count: a carriage return ends a line). With `final` also a
        last line without its end."""
        lines = self._split(self._read())
        if final and self._partial:
            lines.append(_clean(self._partial))
            self._partial = b""
        return [line for line in lines if line]

    def skip_to_end(self) -> None:
        """Look only at what is written from now on."""
        if self._open():
            self.position = os.fstat(self._fd).st_size

    def _open(self) -> bool:
        """Follow the name: a replaced file is read from its start. The descriptor stays open, so that
        the old file's inode number cannot come back as another file's."""
        try:
            now = os.stat(self.path)
            held = os.fstat(self._fd) if self._fd >= 0 else None
            if held is None or (held.st_dev, held.st_ino) != (now.st_dev, now.st_ino):
                self.close()
                self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
                self.position, self._partial, self._dropping = 0, b"", False
            elif now.st_size < self.position:
                self.position, self._partial, self._dropping = 0, b"", False
        except OSError:
            return False
        return True

    def _read(self) -> bytes:
        if not self._open():
            return b""
        try:
            data = os.pread(self._fd, READ_CAP, self.position)
        except OSError:
            return b""
        self.position += len(data)
        return data

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.close()

    def _split(self, data: bytes) -> list[str]:
        if not data:
            return []
        *whole, rest = _BREAK.split(data)
        lines = []
        for piece in whole:
            if not self._dropping:
                lines.append(_clean(self._partial + piece))
            self._partial, self._dropping = b"", False
        if not self._dropping:
            self._partial += rest
        if len(self._partial) > LINE_CAP:
            lines.append(_clean(self._partial))
            self._partial, self._dropping = b"", True
        return lines


def _clean(raw: bytes) -> str:
    return _ANSI.sub("", raw[:LINE_CAP].decode("utf-8", "replace")).replace("\0", "").rstrip()


_RANK = re.compile(r"^\[[^\]]*?((?: (?:TP|DP|PP|EP|ATTN_?TP|CP)\d+)+)\]")


def rank_of(line: str) -> str | None:
    """`TP0`, `DP1 TP3`, … from a log line's head; None where it has none."""
    match = _RANK.match(line)
    return match.group(1).strip() if match else None


_MILESTONES: tuple[tuple[str, float, re.Pattern[str]], ...] = tuple(
    (name, weight, re.compile(pattern))
    for name, weight, pattern in (
        ("arguments", 0.05, r"server_args=ServerArgs\("),
        ("processes", 0.10, r"Init (?:torch distributed|parallel) begin"),
        ("process group", 0.15, r"Init (?:torch distributed|parallel) ends"),
        ("weights", 0.20, r"Load weight begin|Loading \w+ checkpoint shards|Multi-thread loading"),
        ("weights loaded", 0.60, r"Load weight end"),
        ("kv cache", 0.65, r"KV Cache is allocated|Memory pool end"),
        ("graph capture", 0.70, r"Capture (?:[\w-]+ )*(?:CUDA|cuda|CPU|cpu) graph begin|Capturing batches"),
        ("graphs captured", 0.85, r"Capture (?:[\w-]+ )*(?:CUDA|cuda|CPU|cpu) graph end"),
        ("scheduler", 0.88, r"max_total_num_tokens=\d+"),
        ("http", 0.92, r"Uvicorn running on|Application startup complete"),
        ("warm-up done", 1.0, r"The server is fired up and ready to roll"),
    )
)
WEIGHTS_SPAN = (0.20, 0.60)
_SHARDS = re.compile(
    r"(?:Loading [\w-]+ (?:[\w-]+ )?checkpoint shards|Multi-thread loading[\w ]* shards|Capturing batches)"
    r".*?:\s+(\d+)%"
)


@dataclass
class Progress:
    """How far a load has come, by its log. `fraction` is of the whole load, by rough weights."""

    milestone: str = "started"
    fraction: float = 0.0
    shown: tuple[str, float] = ("", -1.0)
    seen: dict[str, set[str]] = field(default_factory=dict)
    """Milestone -> the ranks that reached it (an empty name for lines without a rank)."""

    def take(self, line: str) -> bool:
        """True when this line moved the load on."""
        moved = False
        for name, weight, pattern in _MILESTONES:
            if pattern.search(line):
                ranks = self.seen.setdefault(name, set())
                rank = rank_of(line) or ""
                moved = moved or rank not in ranks
                ranks.add(rank)
                if weight > self.fraction:
                    self.milestone, self.fraction = name, weight
                break
        return self._take_percent(line) or moved

    def _take_percent(self, line: str) -> bool:
        match = _SHARDS.search(line)
        if not match:
            return False
        share = int(match.group(1)) / 100
        low, high = (0.70, 0.85) if "Capturing" in line else WEIGHTS_SPAN
        at = low + (high - low) * share
        if at <= self.fraction:
            return False
        self.fraction = at
        self.milestone = "graph capture" if "Capturing" in line else "weights"
        return True

    def take_share(self, share: float) -> None:
        """How much of the checkpoint was read (0 to 1), where the log tells no shards."""
        low, high = WEIGHTS_SPAN
        if self.milestone == "weights":
            self.fraction = max(self.fraction, low + (high - low) * share)

    def changed(self) -> bool:
        """True once for each state worth an event (a new milestone or two percent more)."""
        name, fraction = self.shown
        if self.milestone == name and self.fraction - fraction < 0.02:
            return False
        self.shown = (self.milestone, self.fraction)
        return True
