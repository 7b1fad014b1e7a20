"""Step: one change to a host, with how to take it back. A step cannot be built without its undo."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Json = Any
Phase = Literal["check", "backup", "stage", "rehearse", "stop", "swap", "launch", "ready", "smoke", "commit"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """An operation of the agent (specops/remote/ops.py) and its arguments, as data."""

    op: str
    args: dict[str, Json] = field(default_factory=dict)

    def as_json(self) -> dict[str, Json]:
        return {"op": self.op, "args": self.args}


@dataclass(frozen=True, slots=True)
class Inert:
    """The step leaves nothing that a running system can see; say why."""

    reason: str

    def as_json(self) -> dict[str, Json]:
        return {"inert": self.reason}


@dataclass(frozen=True, slots=True)
class Irreversible:
    """The step cannot be taken back; it may only be the last of a plan."""

    reason: str

    def as_json(self) -> dict[str, Json]:
        return {"irreversible": self.reason}


Undo = Command | Inert | Irreversible


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    name: str
    phase: Phase
    do: Command
    undo: Undo

    def as_json(self) -> dict[str, Json]:
        return {
            "name": self.name,
            "phase": self.phase,
            "do": self.do.as_json(),
            "undo": self.undo.as_json(),
        }
