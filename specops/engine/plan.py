"""Plan: the ordered steps for one instance on one host; a value that can be shown, stored and compared."""

from __future__ import annotations

import base64
import getpass
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from specops import __version__
from specops.steps.step import Irreversible, Step

if TYPE_CHECKING:
    from specops.engine.check import Check

FORMAT = 1
"""Of the plan on the wire and in the journal's folder; an agent refuses a format it does not know."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outage:
    """How long nothing answers, in seconds; None where no earlier load of this model is known."""

    load_s: float | None
    restore_s: float | None
    """What a failed deploy adds: loading the old server again."""
    replaces: str | None
    """The server that is stopped, in one line; None where nothing is serving."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileDiff:
    path: str
    diff: str
    """Unified; a note instead where a file is new or not text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    id: str
    kind: Literal["deploy", "rollback"]
    host: str
    instance: Mapping[str, Any]
    facts_digest: str
    summary: Mapping[str, Any]
    steps: tuple[Step, ...]
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    """sha256 -> bytes of every file that a step stages."""
    outage: Outage
    diffs: tuple[FileDiff, ...] = ()
    launch: tuple[str, ...] = ()
    """The launch command, for people; empty where the plan starts nothing new."""
    env_changes: Mapping[str, str | None] = field(default_factory=dict)
    """Against the environment that the new server starts from; None where a variable is taken away."""
    restores: tuple[str, ...] = ()
    """What a rollback would bring back, a line each."""
    checks: tuple[Check, ...] = ()
    """Of preflight, with what each saw."""
    notes: tuple[str, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What `{secret:NAME}` in a launch stands for; goes into the host's vault and is never shown."""

    def __post_init__(self) -> None:
        for step in self.steps[:-1]:
            if isinstance(step.undo, Irreversible):
                raise ValueError(f"step {step.name!r} cannot be undone and is not the last of the plan")

    def as_wire(self) -> dict[str, Any]:
        """The plan as the agent stores it (ARCHITECTURE, Plan); blobs travel beside it."""
        return {
            "format": FORMAT,
            "id": self.id,
            "kind": self.kind,
            "host": self.host,
            "instance": dict(self.instance),
            "by": author(),
            "facts_digest": self.facts_digest,
            "summary": dict(self.summary),
            "steps": [step.as_json() for step in self.steps],
        }

    def blobs_as_wire(self) -> dict[str, str]:
        return {digest: base64.b64encode(data).decode() for digest, data in self.blobs.items()}

    def as_json(self) -> dict[str, Any]:
        """For `--json` and for people: the wire form and what explains it."""
        return {
            **self.as_wire(),
            "outage": {
                "load_s": self.outage.load_s,
                "restore_s": self.outage.restore_s,
                "replaces": self.outage.replaces,
            },
            "diffs": [{"path": d.path, "diff": d.diff} for d in self.diffs],
            "launch": list(self.launch),
            "env_changes": dict(self.env_changes),
            "restores": list(self.restores),
            "checks": [check.as_json() for check in self.checks],
            "notes": list(self.notes),
        }


def new_id() -> str:
    """Sorts by time, and two users in one second do not meet."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


def author() -> dict[str, str]:
    return {"user": getpass.getuser(), "host": socket.gethostname(), "version": __version__}
