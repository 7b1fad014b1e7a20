"""Outcome: the closed set of ways a request can end, and the exit code of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Unchanged:
    """Everything asked for is already so; nothing was restarted."""

    serving: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """A dry run: the plan was made and not sent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Deployed:
    deploy: str
    serving: str
    inconclusive: tuple[str, ...] = ()
    """Checks that stayed without a verdict; the deploy was kept (exit 15)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RolledBack:
    deploy: str
    cause: str
    serving: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RollbackFailed:
    deploy: str
    cause: str
    failures: tuple[str, ...]
    serving: str
    next_command: str = "specops recover"


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusedOnHost:
    """The host said no before anything visible changed: preflight, rehearsal, drift."""

    deploy: str
    cause: str
    serving: str
    next_command: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class StillRunning:
    """Nobody follows any more and the host goes on by itself."""

    deploy: str
    why: str


Outcome = Unchanged | Planned | Deployed | RolledBack | RollbackFailed | RefusedOnHost | StillRunning


def how(outcome: Outcome) -> str:
    """In a word or two, for `--json`."""
    match outcome:
        case Unchanged():
            return "unchanged"
        case Planned():
            return "planned"
        case Deployed(inconclusive=()):
            return "deployed"
        case Deployed():
            return "deployed, inconclusive"
        case RolledBack():
            return "rolled back"
        case RollbackFailed():
            return "rollback failed"
        case RefusedOnHost():
            return "refused"
        case StillRunning():
            return "still running"


def exit_code(outcome: Outcome) -> int:
    """The blueprint's table; errors carry their own (specops.errors)."""
    match outcome:
        case Unchanged() | Planned():
            return 0
        case Deployed(inconclusive=()):
            return 0
        case Deployed():
            return 15
        case RolledBack():
            return 20
        case RollbackFailed():
            return 21
        case RefusedOnHost():
            return 13
        case StillRunning():
            return 22


def from_closed(deploy: str, closed: Mapping[str, Any]) -> Outcome:
    """The outcome that a journal's `closed` entry names (ARCHITECTURE, Journal entries)."""
    cause = cause_line(closed.get("cause"))
    serving = serving_line(closed.get("serving"))
    match closed.get("how"):
        case "deployed":
            return Deployed(deploy=deploy, serving=serving)
        case "inconclusive":
            checks = tuple(str(check) for check in closed.get("checks") or ()) or (cause or "smoke",)
            return Deployed(deploy=deploy, serving=serving, inconclusive=checks)
        case "rolled back":
            return RolledBack(deploy=deploy, cause=cause, serving=serving)
        case "refused":
            raw = closed.get("cause")
            command = str(raw.get("next_command") or "") if isinstance(raw, Mapping) else ""
            return RefusedOnHost(deploy=deploy, cause=cause, serving=serving, next_command=command)
        case "rollback failed":
            failures = tuple(cause_line(failure) for failure in closed.get("failures") or ())
            return RollbackFailed(
                deploy=deploy,
                cause=cause,
                failures=failures,
                serving=serving,
                next_command=_after_failures(closed.get("failures") or ()),
            )
        case other:
            return StillRunning(
                deploy=deploy, why=f"the journal ends in a way this version does not know: {other!r}"
            )


def _after_failures(failures: Sequence[Any]) -> str:
    """Without force, what stopped at a stranger's bytes would stop there again."""
    force = any(isinstance(each, Mapping) and each.get("code") == "drifted" for each in failures)
    return "specops recover --force" if force else "specops recover"


def cause_line(cause: Any) -> str:
    """One line for a cause or a failed undo, whatever form the journal holds it in."""
    if cause is None:
        return ""
    if isinstance(cause, Mapping):
        step = f"{cause['step']}: " if cause.get("step") else ""
        return step + str(cause.get("message") or cause.get("error") or cause)
    return str(cause)


def serving_line(serving: Any) -> str:
    """What the host says is serving at the end, in one line."""
    if serving is None:
        return "nothing is known of what is serving: specops status"
    if isinstance(serving, Mapping):
        if serving.get("line"):
            return str(serving["line"])
        if not serving.get("pid"):
            return "nothing is serving"
        which = serving.get("which") or "a server"
        return f"{which} (pid {serving['pid']}) on port {serving.get('port', '?')}"
    return str(serving)
