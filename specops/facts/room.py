"""Room on a host: disks, shared memory, ports, and the tools that kernels are compiled with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Space:
    """Bytes."""

    free: int
    total: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    pids: tuple[int, ...]
    line: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    disks: Mapping[str, Space] = field(default_factory=dict)
    """By the folder that was asked for."""
    shm: Space | None = None
    ports: Mapping[int, Holder | None] = field(default_factory=dict)
    """None where it can be bound."""
    tools: Mapping[str, str | None] = field(default_factory=dict)


def parse_room(raw: Mapping[str, Any] | None) -> Room:
    raw = raw or {}
    return Room(
        disks={path: _space(space) for path, space in (raw.get("disks") or {}).items()},
        shm=_space(raw["shm"]) if raw.get("shm") else None,
        ports={int(port): _holder(held) for port, held in (raw.get("ports") or {}).items()},
        tools=dict(raw.get("tools") or {}),
    )


def _space(raw: Mapping[str, Any]) -> Space:
    return Space(free=int(raw["free"]), total=int(raw["total"]))


def _holder(raw: Mapping[str, Any] | None) -> Holder | None:
    return Holder(pids=tuple(raw.get("pids") or ()), line=str(raw.get("line", ""))) if raw else None
