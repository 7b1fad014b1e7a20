"""The server that listens on an instance's port, and whoever else may hold that port."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Supervisor:
    kind: str
    name: str
    how: str
    """How it was seen: the cgroup, the parent, …"""
    drivable: bool = False
    """Whether the agent can tell it to stop and to start the server."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    pid: int
    start_ticks: int
    pgid: int
    uid: int
    argv: tuple[str, ...]
    """Secrets are redacted on the host; the real one never leaves it."""
    cwd: str
    env: Mapping[str, str]
    """Secrets are redacted on the host."""
    members: tuple[int, ...]
    supervisor: Supervisor | None
    healthy: bool
    reported: Mapping[str, Any] = field(default_factory=dict)
    """What the server says of itself (`/get_server_info`), a subset."""
    cookie: str | None = None
    """The deploy that launched it, if specops did."""
    since: float | None = None
    """Unix seconds."""
    no_restore: str | None = None
    """Why it could not be started again, were it stopped."""
    same_env: frozenset[str] = frozenset()
    """Variables with just the secrets that were asked for."""
    same_flags: frozenset[str] = frozenset()
    gate_off: str | None = None
    """The line of its log in which SGLang says that it switched the native gate off."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Port:
    free: bool
    holder: str | None
    """One line: pid, user and command of whoever listens, None where that is the server or nobody."""


def parse_server(raw: dict[str, Any] | None) -> Server | None:
    if raw is None:
        return None
    boss = raw.get("supervisor")
    return Server(
        pid=int(raw["pid"]),
        start_ticks=int(raw["start_ticks"]),
        pgid=int(raw["pgid"]),
        uid=int(raw["uid"]),
        argv=tuple(str(word) for word in raw["argv"]),
        cwd=str(raw["cwd"]),
        env=dict(raw.get("env") or {}),
        members=tuple(int(pid) for pid in raw.get("members") or ()),
        supervisor=Supervisor(
            kind=str(boss["kind"]),
            name=str(boss.get("name", "")),
            how=str(boss.get("how", "")),
            drivable=bool(boss.get("control")),
        )
        if boss
        else None,
        healthy=bool(raw.get("healthy")),
        reported=dict(raw.get("reported") or {}),
        cookie=raw.get("cookie"),
        since=raw.get("since"),
        no_restore=raw.get("no_restore"),
        same_env=frozenset((raw.get("same") or {}).get("env") or ()),
        same_flags=frozenset((raw.get("same") or {}).get("flags") or ()),
        gate_off=raw.get("gate_off"),
    )


def parse_port(raw: dict[str, Any]) -> Port:
    holder = raw.get("holder")
    line = None
    if holder:
        command = " ".join(str(word) for word in holder.get("argv") or ())[:80]
        command = command or "(command not readable)"
        line = f"pid {holder.get('pid', '?')} of {holder.get('user', '?')}: {command}"
    return Port(free=bool(raw["free"]), holder=line)
