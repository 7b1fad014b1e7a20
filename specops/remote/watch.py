"""One running server under watch: its log for fatal lines, its processes for deaths."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import procs
from .diagnose import Diagnosis, describe, strip_head
from .logscan import LogReader, Progress

SETTLE_S = 0.6
"""How long a fatal line waits for the rest of its traceback before the verdict is given."""
LAST_WORDS_S = 1.4
"""The same for a death in the middle of a traceback: others tell late, and at length, that it died."""
REAP_S = 0.5
ACCESS = re.compile(r'"[A-Z]+ \S+ HTTP/1\.[01]" \d{3}')
"""A line about a request that was answered."""
TITLE = "sglang::"
"""SGLang's workers rename themselves to this and their part (scheduler_TP0, detokenizer, …)."""


@dataclass(frozen=True)
class Verdict:
    """Why a server is dead or dying."""

    id: str
    message: str
    rank: str | None
    at: float
    """Unix seconds when the fatal line or the death was first seen."""
    action: str = ""
    traceback: tuple[str, ...] = ()
    issues: tuple[str, ...] = ()

    def as_cause(self) -> dict[str, Any]:
        """What the journal's `verdict` entry holds."""
        return {"id": self.id, "message": self.message, "rank": self.rank, "at": self.at}

    def as_detail(self) -> dict[str, Any]:
        return {
            **self.as_cause(),
            "action": self.action,
            "traceback": list(self.traceback),
            "issues": list(self.issues),
        }


@dataclass
class ServerWatch:
    """Watch a server by its log and its launcher (pid with start ticks). Call `poll` every 0.2 s or so.

    `cookie` finds the members that left the launcher's tree. With `from_end` only what is logged from
    now on counts. `gate_expected` makes SGLang's "speculative_adaptive disabled:" fatal.
    """

    log_path: Path | None
    pid: int
    start_ticks: int
    cookie: str | None = None
    from_end: bool = False
    gate_expected: bool = False
    progress: Progress = field(default_factory=Progress)
    moved_at: float = field(default_factory=time.monotonic)
    """Monotonic seconds of the last log line that was not about a request: our own probe makes some."""
    verdict: Verdict | None = None

    def __post_init__(self) -> None:
        self._reader = LogReader(self.log_path) if self.log_path else None
        if self._reader and self.from_end:
            self._reader.skip_to_end()
        self._diagnosis = Diagnosis(gate_expected=self.gate_expected)
        self._workers: dict[tuple[int, int], str] = {}
        self._death: tuple[float, str, str | None] | None = None

    def poll(self) -> Verdict | None:
        """None while nothing fatal is known. Once there is a verdict it stays."""
        if self.verdict is not None:
            return self.verdict
        self._read_log(final=False)
        if self._death is None:
            self._death = self._find_death()
        if self._death is not None:
            self._read_log(final=True)
            self.verdict = self._judge_death(self._death)
        else:
            self.verdict = self._judge_line()
        return self.verdict

    def _read_log(self, *, final: bool) -> None:
        if self._reader is None:
            return
        lines = self._reader.read_lines(final=final)
        if any(not ACCESS.search(line) for line in lines):
            self.moved_at = time.monotonic()
        now = time.time()
        for line in lines:
            self.progress.take(line)
            self._diagnosis.feed(line, now)

    def _find_death(self) -> tuple[float, str, str | None] | None:
        """(when, what, rank) of the first member found dead."""
        now = time.time()
        if not procs.lives(self.pid, self.start_ticks):
            return (now, f"the launcher (pid {self.pid}) ended{exit_words(self.pid)}", None)
        for (pid, ticks), title in self._workers.items():
            if not procs.lives(pid, ticks):
                return (now, f"{title} (pid {pid}) died", _rank_in(title))
        self._find_workers()
        return None

    def _find_workers(self) -> None:
        for pid in procs.children_of(self.pid):
            process = procs.read_process(pid)
            if process is None or not process.living or process.key in self._workers:
                continue
            title = _title(pid)
            # A worker's short-lived fork bears its name until it runs something else: its end is no death.
            if title and not _title(process.ppid):
                self._workers[process.key] = title

    def _judge_line(self) -> Verdict | None:
        fatal = self._diagnosis.fatal
        if fatal is None:
            return None
        root = self._diagnosis.root()
        # What a rank says of another's end comes a moment before that end can be seen.
        open_yet = not self._diagnosis.settled or (root is not None and root.secondary)
        if open_yet and time.time() - fatal.at < SETTLE_S:
            return None
        return self._named(fatal.at)

    def _judge_death(self, death: tuple[float, str, str | None]) -> Verdict | None:
        at, what, rank = death
        fatal = self._diagnosis.fatal
        seen = min(at, fatal.at) if fatal else at
        waited = time.time() - at
        if (
            waited < (LAST_WORDS_S if self._diagnosis.unfinished else SETTLE_S)
            and not self._diagnosis.settled
        ):
            return None  # its last words may still be on their way to the log
        root = self._diagnosis.root()
        if root is not None and not root.secondary:
            return self._named(seen)
        said = f"; SGLang says: {root.last_line or strip_head(root.line)}"[:400] if root is not None else ""
        action = "it went without a word, as when the kernel kills for lack of memory: look at dmesg"
        return Verdict(id="PROCESS_DIED", message=what + said, rank=rank, at=seen, action=action)

    def _named(self, at: float) -> Verdict:
        root = self._diagnosis.root()
        if root is None:
            raise RuntimeError("a verdict needs a finding")
        cause = describe(root)
        return Verdict(
            id=cause["id"],
            message=cause["message"],
            rank=cause["rank"],
            at=min(at, cause["at"]) if root.fatal else at,
            action=cause["action"],
            traceback=tuple(cause["traceback"]),
            issues=tuple(cause["issues"]),
        )


def _title(pid: int) -> str:
    """The name that a worker of SGLang gave itself, empty for any other process."""
    first = " ".join(procs.read_argv(pid)[:1])
    return first.split()[0] if first.startswith(TITLE) else ""


def exit_words(pid: int) -> str:
    """How it ended, ` with exit code 2` or ` by signal 9`; empty where nobody knows."""
    until = time.monotonic() + REAP_S
    # the main thread can be a zombie while others of its process still end: then it cannot be reaped yet
    while (status := _end_of(pid)) is None and pid in procs.CHILDREN and time.monotonic() < until:
        time.sleep(0.01)
    if status is None:
        return ""
    return f" by signal {-status}" if status < 0 else f" with exit code {status}"


def _end_of(pid: int) -> int | None:
    status = procs.exit_status(pid)
    return procs.read_end(pid) if status is None else status


def _rank_in(title: str) -> str | None:
    parts = [part for part in title.replace("sglang::", "").split("_") if part[-1:].isdigit()]
    return " ".join(parts) or None
