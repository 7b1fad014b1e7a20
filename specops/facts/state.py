"""What the host remembers of an instance: its lock, an unfinished deploy, the deploy in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class DeployedFile:
    path: str
    before: str | None
    after: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Current:
    """The deploy that is in force: the last one that closed and was not rolled back since."""

    id: str
    kind: str
    summary: Mapping[str, Any]
    files: tuple[DeployedFile, ...]
    has_old_server: bool
    how: str
    cookies: tuple[str, ...] = ()
    """That its server can carry: its own, and those of servers that failed deploys started again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    dir: str
    key: str
    lock: Mapping[str, Any] | None
    unfinished: Mapping[str, Any] | None
    current: Current | None
    stack: tuple[str, ...] = field(default=())
    """Ids of the deploys that a rollback can still take back, newest first."""


def parse_state(raw: dict[str, Any]) -> State:
    now = raw.get("current")
    return State(
        dir=str(raw["dir"]),
        key=str(raw["key"]),
        lock=raw.get("lock"),
        unfinished=raw.get("unfinished"),
        current=_parse_current(now) if now else None,
        stack=tuple(str(deploy) for deploy in raw.get("stack") or ()),
    )


def _parse_current(raw: dict[str, Any]) -> Current:
    return Current(
        id=str(raw["id"]),
        kind=str(raw.get("kind", "deploy")),
        summary=dict(raw.get("summary") or {}),
        files=tuple(
            DeployedFile(path=str(f["path"]), before=f["before"], after=f["after"])
            for f in raw.get("files") or ()
        ),
        has_old_server=bool(raw.get("has_old_server")),
        how=str(raw.get("how") or raw.get("closed") or ""),
        cookies=tuple(str(cookie) for cookie in raw.get("cookies") or ()),
    )
