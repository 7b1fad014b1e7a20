"""From log lines to one cause: the earliest root line, never what followed from it."""

from __future__ import annotations

import json
import pkgutil
import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from .logscan import rank_of


@dataclass(frozen=True)
class Signature:
    """One kind of line, from data/failure_signatures.json."""

    id: str
    role: str
    """`root` names a cause; `header` opens a traceback that does; `died` and `secondary` follow from a
    cause; `gate` is a cause where a gate was asked for; `info` is none."""
    fatal: bool
    """The server will not recover from it: no need to wait for its death."""
    pattern: re.Pattern[str]
    cause: str
    action: str
    issues: tuple[str, ...]


@cache
def load_signatures() -> tuple[Signature, ...]:
    raw = pkgutil.get_data(__package__ or "", "data/failure_signatures.json")
    if raw is None:
        raise RuntimeError("the agent was packed without data/failure_signatures.json")
    return tuple(
        Signature(
            id=entry["id"],
            role=entry["role"],
            fatal=entry["fatal"],
            pattern=re.compile(entry["regex"]),
            cause=entry["cause"],
            action=entry["action"],
            issues=tuple(entry["issues"]),
        )
        for entry in json.loads(raw)["signatures"]
    )


def match_line(line: str) -> Signature | None:
    """The first signature that this line carries, in the table's order."""
    for signature in load_signatures():
        if signature.pattern.search(line):
            return signature
    return None


def signature(name: str) -> Signature:
    return next(entry for entry in load_signatures() if entry.id == name)


@dataclass
class Finding:
    """A line that may be the cause, and the traceback it belongs to."""

    signature: Signature | None
    line: str
    rank: str | None
    at: float
    """Unix seconds when it was first seen."""
    fatal: bool
    header: Signature | None = None
    """What opened the traceback, before its exception line named it better."""
    traceback: list[str] = field(default_factory=list)
    last_line: str = ""
    """The traceback's exception line, once it is complete."""

    @property
    def secondary(self) -> bool:
        return self.signature is not None and self.signature.role in ("secondary", "died")


_HEAD = re.compile(r"^\[[^\]]*\]\s*")
TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Failure|Timeout)|[A-Za-z_][\w.]*:)"
)
_CHAIN = ("During handling of the above exception", "The above exception was the direct cause")
TRACEBACK_LINES = 200
"""Kept of one traceback."""
RECENT_S = 60.0
"""A line that names a cause is that of a later fatal one within this time: ranks fail one after another."""


def strip_head(line: str) -> str:
    """Without the logger's `[time rank]`."""
    return _HEAD.sub("", line).strip()


class Diagnosis:
    """Feed it every line once, in order."""

    def __init__(self, *, gate_expected: bool = False) -> None:
        self.findings: list[Finding] = []
        self.gate_expected = gate_expected
        self._open: Finding | None = None

    def feed(self, line: str, at: float) -> None:
        if self._open is not None and self._continue(self._open, line, at):
            return
        found = match_line(line)
        if TRACEBACK in line:
            self._begin(found, line, at)
        elif found is not None and found.role != "info":
            fatal = found.fatal or (found.role == "gate" and self.gate_expected)
            if found.role != "gate" or self.gate_expected:
                self.findings.append(Finding(found, line, rank_of(line), at, fatal))

    def _begin(self, found: Signature | None, line: str, at: float) -> None:
        finding = Finding(found, line, rank_of(line), at, bool(found and found.fatal), header=found)
        self._open = finding
        self.findings.append(finding)

    def _continue(self, finding: Finding, line: str, at: float) -> bool:
        """True while the line belongs to the open traceback."""
        if len(finding.traceback) < TRACEBACK_LINES:
            finding.traceback.append(line)
        if line.startswith(_CHAIN):
            # what was raised last is what ended it
            finding.last_line, finding.signature = "", finding.header
            finding.fatal = bool(finding.header and finding.header.fatal)
            return True
        if not line or line.startswith((" ", "\t")) or line == TRACEBACK:
            return True
        if finding.last_line:
            # a message of several lines, or the log going on
            if line.startswith("[") or match_line(line):
                self._open = None
                finding.traceback.pop()
                return False
            return len(finding.traceback) < TRACEBACK_LINES
        if _EXCEPTION.match(line):
            finding.last_line = line
            self._refine(finding, line)
            return True
        self._open = None
        return False

    @staticmethod
    def _refine(finding: Finding, line: str) -> None:
        """The exception line may name the cause better than the header did."""
        better = match_line(line)
        if better is not None and better.role in ("root", "secondary", "died"):
            finding.signature = better
            finding.fatal = finding.fatal or better.fatal

    @property
    def settled(self) -> bool:
        """Whether the first fatal finding is complete (its exception line was read)."""
        fatal = self.fatal
        return fatal is not None and (bool(fatal.last_line) or TRACEBACK not in fatal.line)

    @property
    def fatal(self) -> Finding | None:
        return next((finding for finding in self.findings if finding.fatal), None)

    @property
    def unfinished(self) -> bool:
        """Whether a traceback is being written whose exception is still to come."""
        return self._open is not None and not self._open.last_line

    def root(self) -> Finding | None:
        """The earliest finding that is a cause by itself; the last whole traceback where there is none;
        what only followed from a cause when nothing else was seen. What was said long before a fatal line,
        and did no harm, is not its cause."""
        fatal = self.fatal
        since = fatal.at - RECENT_S if fatal is not None and not fatal.secondary else float("-inf")
        for finding in self.findings:
            named = finding.signature is not None and not finding.secondary
            plain = TRACEBACK in finding.line and not finding.fatal
            if named and not plain and finding.at >= since:
                return finding
        tracebacks = [f for f in self.findings if f.last_line and not f.secondary]
        if tracebacks:
            return tracebacks[-1]
        return next((finding for finding in self.findings if finding.signature is not None), None)


def describe(finding: Finding) -> dict[str, Any]:
    """A cause as journal and people take it: {id, message, rank, at, action, traceback, issues}."""
    tail = finding.last_line or strip_head(finding.line)
    known = finding.signature
    cause = known.cause if known else "the server hit an exception"
    return {
        "id": known.id if known else "EXCEPTION",
        "message": f"{cause}: {tail[:500]}",
        "rank": finding.rank,
        "at": finding.at,
        "action": known.action if known else "read the traceback in the log",
        "traceback": [finding.line, *finding.traceback][-12:] if finding.traceback else [],
        "issues": list(known.issues) if known else [],
    }
