"""What the host remembers of an instance: its lock, an unfinished deploy, the deploy in force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
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
    installed: tuple[DeployedFile, ...] = ()
    """What all deploys in force changed together: `before` is what was there before the first of them."""
    cookies: tuple[str, ...] = ()
    """That its server can carry: its own, and those of servers that failed deploys started again."""
    old_load_s: float | None = None
    """How long the server that it captured took to load, if that was ever measured here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """The newest measured load of a model with a draft on this instance."""

    model: str | None
    draft: str | None
    load_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Other:
    """A deploy of the same install that never ended, in a state folder that is not ours."""

    user: str
    deploy: str
    port: int
    folder: str
    since: float

    @property
    def line(self) -> str:
        return f"deploy {self.deploy} by {self.user} on port {self.port} never ended ({self.folder})"


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    dir: str
    key: str
    lock: Mapping[str, Any] | None
    unfinished: Mapping[str, Any] | None
    current: Current | None
    stack: tuple[str, ...] = field(default=())
    """Ids of the deploys that a rollback can still take back, newest first."""
    loads: tuple[Load, ...] = ()
    others: tuple[Other, ...] = ()

    def load_s(self, argv: Sequence[str]) -> float | None:
        """How long a launch command's models took to load here; None where they never did."""
        model = _option(argv, "--model-path", "--model")
        draft = _option(argv, "--speculative-draft-model-path", "--speculative-draft-model")
        same = [load for load in self.loads if load.model == model and model is not None]
        return next((load.load_s for load in same if load.draft == draft), same[0].load_s if same else None)


def _option(argv: Sequence[str], *names: str) -> str | None:
    """Value of `--name value` or `--name=value`; the last one wins."""
    value = None
    for word, after in pairwise([*argv, ""]):
        name, equals, rest = word.partition("=")
        if name in names:
            value = rest if equals else after
    return value


def parse_state(raw: dict[str, Any]) -> State:
    now = raw.get("current")
    return State(
        dir=str(raw["dir"]),
        key=str(raw["key"]),
        lock=raw.get("lock"),
        unfinished=raw.get("unfinished"),
        current=_parse_current(now) if now else None,
        stack=tuple(str(deploy) for deploy in raw.get("stack") or ()),
        loads=tuple(
            Load(model=load.get("model"), draft=load.get("draft"), load_s=float(load["load_s"]))
            for load in raw.get("loads") or ()
        ),
        others=tuple(_parse_other(other) for other in raw.get("others") or ()),
    )


def _parse_other(raw: dict[str, Any]) -> Other:
    return Other(
        user=str(raw["user"]),
        deploy=str(raw["deploy"]),
        port=int(raw["port"]),
        folder=str(raw["folder"]),
        since=float(raw["since"]),
    )


def _parse_current(raw: dict[str, Any]) -> Current:
    return Current(
        id=str(raw["id"]),
        kind=str(raw.get("kind", "deploy")),
        summary=dict(raw.get("summary") or {}),
        files=_parse_files(raw.get("files")),
        installed=_parse_files(raw.get("installed")),
        has_old_server=bool(raw.get("has_old_server")),
        how=str(raw.get("how") or raw.get("closed") or ""),
        cookies=tuple(str(cookie) for cookie in raw.get("cookies") or ()),
        old_load_s=raw.get("old_load_s"),
    )


def _parse_files(raw: Any) -> tuple[DeployedFile, ...]:
    return tuple(DeployedFile(path=str(f["path"]), before=f["before"], after=f["after"]) for f in raw or ())
