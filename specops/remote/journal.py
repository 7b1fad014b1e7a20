"""Journal: what was about to happen, on disk before it happens. It alone decides how a deploy ended."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import state

Json = Any
FORMAT = 1
"""Of a deploy's folder: plan, journal, vault. An `opened` entry without one is of format 1."""
FAILED_ROLLBACK = "rollback failed"
FINAL = ("deployed", "inconclusive", "rolled back", "refused")
"""Ways to close that nothing is owed after; a failed rollback stays owed until it is retried."""


class Journal:
    """Appends to one deploy's journal.jsonl. One process at a time (the lock's), any of its threads."""

    def __init__(self, deploy_dir: Path) -> None:
        self.path = deploy_dir / "journal.jsonl"
        self._mutex = threading.Lock()
        entries = read(deploy_dir)
        self._seq = int(entries[-1]["seq"]) if entries else 0

    def append(self, entry: dict[str, Json]) -> dict[str, Json]:
        """Durable when it returns. Adds `seq` and `at`; gives back the whole entry."""
        with self._mutex:
            whole = {"seq": self._seq + 1, "at": time.time(), **entry}
            new = not self.path.exists()
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                _cut_torn_line(fd)
                _write_line(fd, json.dumps(whole, ensure_ascii=True).encode() + b"\n")
                os.fsync(fd)
            finally:
                os.close(fd)
            if new:
                state.fsync_folder(self.path.parent)
            self._seq += 1
            return whole


def _write_line(fd: int, data: bytes) -> None:
    """All of it or nothing: half a line of a full disk is taken back."""
    size = os.fstat(fd).st_size
    try:
        rest = data
        while rest:
            rest = rest[os.write(fd, rest) :]
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(fd, size)
        raise


def _cut_torn_line(fd: int) -> None:
    """A writer that died left half a line; nothing was done on its word."""
    size = os.fstat(fd).st_size
    if not size or os.pread(fd, 1, size - 1) == b"\n":
        return
    whole = os.pread(fd, size, 0)
    os.ftruncate(fd, whole.rfind(b"\n") + 1)


def read(deploy_dir: Path) -> list[dict[str, Json]]:
    """Every whole entry; what a dying writer or a power cut left of the last line is left out."""
    try:
        data = (deploy_dir / "journal.jsonl").read_bytes()
    except OSError:
        return []
    entries = []
    for line in data[: data.rfind(b"\n") + 1].splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            break
        if not isinstance(entry, dict) or "entry" not in entry:
            break
        entries.append(entry)
    return entries


@dataclass
class Replay:
    """What a journal says, read from its first entry to its last."""

    opened: dict[str, Json] | None = None
    total_steps: int | None = None
    started: dict[int, dict[str, Json]] = field(default_factory=dict)
    """Index -> its `starting` entry."""
    done: dict[int, dict[str, Json]] = field(default_factory=dict)
    """Index -> facts."""
    undone: dict[int, dict[str, Json]] = field(default_factory=dict)
    failed: dict[str, Json] | None = None
    """The first `failed` entry: later ones are consequences."""
    cause: dict[str, Json] | None = None
    """Of the first `settling`; non-None means that there is no way forward any more."""
    checks: list[dict[str, Json]] = field(default_factory=list)
    verdict: dict[str, Json] | None = None
    closed: dict[str, Json] | None = None

    @property
    def ended(self) -> bool:
        """Nothing is owed any more."""
        return self.closed is not None and self.closed.get("how") in FINAL

    @property
    def phase(self) -> str:
        if self.closed:
            return str(self.closed.get("how"))
        if self.cause is not None:
            return "settle"
        return str(self.started[max(self.started)].get("phase")) if self.started else "check"

    @property
    def owed(self) -> list[int]:
        """Indexes of steps that were started, can be undone and are not undone yet; last started first."""
        return [
            i
            for i in sorted(self.started, reverse=True)
            if i not in self.undone and "op" in self.started[i]["undo"]
        ]

    @property
    def touched(self) -> bool:
        """A step that changes something visible was started."""
        return any("inert" not in entry["undo"] for entry in self.started.values())

    @property
    def committed(self) -> bool:
        """Every step was done and none was taken back: only the `closed` entry is missing.

        So is a deploy whose irreversible last step was started: there is no way back from it.
        """
        if self.cause is not None or self.total_steps is None:
            return False
        if len(self.done) >= self.total_steps:
            return True
        return any("irreversible" in entry["undo"] for entry in self.started.values())

    def in_step(self) -> str:
        """Name of the step that was started last and not done; "" between steps."""
        if not self.started or max(self.started) in self.done:
            return ""
        return str(self.started[max(self.started)].get("name"))


def replay(entries: list[dict[str, Json]]) -> Replay:
    now = Replay()
    for entry in entries:
        kind = entry["entry"]
        index = int(entry.get("index", -1))
        if kind == "opened":
            now.opened = entry
            now.total_steps = entry.get("steps")
        elif kind == "starting":
            now.started[index] = entry
        elif kind == "done":
            now.done[index] = entry.get("facts") or {}
        elif kind == "undone":
            now.undone[index] = entry.get("facts") or {}
        elif kind == "failed":
            now.failed = now.failed or entry
        elif kind == "settling":
            now.cause = now.cause or entry.get("cause") or {}
            now.closed = None
        elif kind == "check":
            now.checks.append({k: v for k, v in entry.items() if k not in ("seq", "at", "entry")})
        elif kind == "verdict":
            now.verdict = now.verdict or entry.get("cause")
        elif kind == "closed":
            now.closed = entry
    return now


def replay_deploy(deploy_dir: Path) -> Replay:
    return replay(read(deploy_dir))
