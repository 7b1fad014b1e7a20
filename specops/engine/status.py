"""Status: what is serving, and whether it still is what was deployed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specops.connect.base import Connector
from specops.engine.place import Place
from specops.engine.planner import describe
from specops.facts.host import HostFacts, read_host_facts


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    serving: str
    healthy: bool
    since: float | None
    """Unix seconds."""
    deploy: str | None
    """The one in force."""
    summary: Mapping[str, Any]
    lock: Mapping[str, Any] | None
    unfinished: Mapping[str, Any] | None
    drift: tuple[str, ...]
    """What is no longer as the deploy in force left it, a line each."""

    def as_json(self) -> dict[str, Any]:
        return {
            "serving": self.serving,
            "healthy": self.healthy,
            "since": self.since,
            "deploy": self.deploy,
            "summary": dict(self.summary),
            "lock": self.lock,
            "unfinished": self.unfinished,
            "drift": list(self.drift),
        }


def read_status(place: Place, connector: Connector) -> Status:
    facts = read_host_facts(connector, place.question())
    current = facts.state.current
    if current and current.files:
        paths = tuple(file.path for file in current.files)
        facts = read_host_facts(connector, place.question(paths=paths))
    server = facts.server
    return Status(
        serving=describe(server) or _nobody(facts),
        healthy=bool(server and server.healthy),
        since=server.since if server else None,
        deploy=current.id if current else None,
        summary=current.summary if current else {},
        lock=facts.state.lock,
        unfinished=facts.state.unfinished,
        drift=tuple(_drift(facts)),
    )


def _nobody(facts: HostFacts) -> str:
    holder = facts.port.holder
    return f"no SGLang server; the port is held by {holder}" if holder else "nothing"


def _drift(facts: HostFacts) -> list[str]:
    current, server = facts.state.current, facts.server
    if current is None:
        return []
    found = [
        f"{file.path} is not as deploy {current.id} left it"
        for file in current.files
        if facts.paths.get(file.path) != file.after
    ]
    if server is None:
        found.append(f"the server of deploy {current.id} is gone")
    elif server.cookie not in current.cookies:
        found.append(f"the server (pid {server.pid}) is not the one that deploy {current.id} started")
    if (
        server
        and current.summary.get("gate") == "native"
        and not server.reported.get("speculative_adaptive", True)
    ):
        found.append("the gate is off: the server reports speculative_adaptive false")
    return found
