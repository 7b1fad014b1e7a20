"""Everything that is asked of a host before a plan is made, in one request."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from specops.facts.gpus import Gpu, Holder, parse_gpus, parse_holders
from specops.facts.install import Install, parse_install
from specops.facts.models import Model, parse_models
from specops.facts.platform import Platform, parse_platform
from specops.facts.room import Room, parse_room
from specops.facts.runtime import Runtime, parse_runtime
from specops.facts.server import Port, Server, parse_port, parse_server
from specops.facts.state import State, parse_state

if TYPE_CHECKING:
    from specops.connect.base import Connector


@dataclass(frozen=True, kw_only=True, slots=True)
class Rank:
    pid: int
    start_ticks: int
    line: str
    """For people."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFacts:
    platform: Platform
    install: Install | None
    paths: Mapping[str, str | None]
    """Absolute path -> sha256, None where there is no such file."""
    models: Mapping[str, Model]
    gpus: tuple[Gpu, ...]
    holders: tuple[Holder, ...]
    room: Room
    runtime: Runtime
    server: Server | None
    port: Port
    state: State
    users: tuple[str, ...]
    ranks: tuple[Rank, ...]
    """SGLang's workers of this install whose launcher is gone."""
    """Other servers that run from the same install, a line each."""
    contents: Mapping[str, bytes]
    """sha256 -> bytes of those files that were asked for by their hash and have it."""
    raw: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """sha256 over what a plan depends on; free memory and clocks are left out."""
        keep = {key: self.raw.get(key) for key in ("install", "paths", "models", "port", "state")}
        if self.server:
            keep["server"] = [self.server.pid, self.server.start_ticks]
        return hashlib.sha256(json.dumps(keep, sort_keys=True, default=str).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What to look at. `~` in paths means the remote user's home."""

    state: str
    port: int
    python: str
    files: tuple[str, ...] = ()
    """Relative to the install's `sglang` folder."""
    paths: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    hub: Mapping[str, Any] = field(default_factory=dict)
    """{set: {name: value}, unset: [name]}: of the launch, what says where models of the hub are."""
    ports: tuple[int, ...] = ()
    """Beside the instance's own: those that its server will bind too."""
    contents: tuple[str, ...] = ()
    """sha256: the bytes of each of `files` that has one of these are wanted too."""
    secrets: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Keyed hashes of values that the server may have (engine/same.py)."""

    def as_params(self) -> dict[str, Any]:
        return {
            "instance": {"state": self.state, "port": self.port, "python": self.python},
            "files": list(self.files),
            "paths": list(self.paths),
            "models": list(self.models),
            "hub": dict(self.hub),
            "ports": list(self.ports),
            "contents": list(self.contents),
            "secrets": dict(self.secrets),
        }


def read_host_facts(connector: Connector, question: Question) -> HostFacts:
    """One request, no change on the host. Raises what Connector.call raises."""
    raw = connector.call("facts", question.as_params(), deadline_s=60)
    if not isinstance(raw, dict):
        raise TypeError(f"facts are not an object: {raw!r}")
    return parse_host_facts(raw)


def parse_host_facts(raw: dict[str, Any]) -> HostFacts:
    return HostFacts(
        platform=parse_platform(raw["platform"]),
        install=parse_install(raw.get("install")),
        paths=dict(raw.get("paths") or {}),
        models=parse_models(raw.get("models")),
        gpus=parse_gpus(raw.get("gpus")),
        holders=parse_holders(raw.get("holders")),
        room=parse_room(raw.get("room")),
        runtime=parse_runtime(raw.get("runtime")),
        server=parse_server(raw.get("server")),
        port=parse_port(raw["port"]),
        state=parse_state(raw["state"]),
        ranks=tuple(
            Rank(
                pid=int(rank["pid"]),
                start_ticks=int(rank["start_ticks"]),
                line=f"{rank['title']} (pid {rank['pid']}, {rank['user']})",
            )
            for rank in raw.get("ranks") or ()
        ),
        users=tuple(
            f"pid {user['pid']} of {user['user']} on port {user['port']}" for user in raw.get("users") or ()
        ),
        contents=parse_contents(raw.get("contents")),
        raw=raw,
    )


def parse_contents(raw: Any) -> dict[str, bytes]:
    """Checked against the hash that each is under."""
    found = {}
    for digest, text in (raw or {}).items():
        data = zlib.decompress(base64.b64decode(text))
        if hashlib.sha256(data).hexdigest() == digest:
            found[digest] = data
    return found
