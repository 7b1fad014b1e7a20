"""Status: what is serving, and whether it still is what was deployed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specops.engine.words import describe
from specops.facts.host import HostFacts, read_host_facts

if TYPE_CHECKING:
    from specops.connect.base import Connector
    from specops.engine.place import Place


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
    others: tuple[str, ...]
    """Deploys of this install that never ended and are not in our state folder, a line each."""
    gate: str
    """What the gate does at this moment, in words; empty where none was deployed."""
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
            "others": list(self.others),
            "gate": self.gate,
            "drift": list(self.drift),
        }


def read_status(place: Place, connector: Connector) -> Status:
    facts = read_host_facts(connector, place.question())
    current = facts.state.current
    if current and current.files:
        paths = tuple(file.path for file in current.files)
        facts = read_host_facts(connector, place.question(paths=paths))
    server = facts.server
    gate, off = read_gate(facts)
    return Status(
        serving=describe(server) or _nobody(facts),
        healthy=bool(server and server.healthy),
        since=server.since if server else None,
        deploy=current.id if current else None,
        summary=current.summary if current else {},
        lock=facts.state.lock,
        unfinished=facts.state.unfinished,
        others=tuple(other.line for other in facts.state.others),
        gate=gate,
        drift=(*find_drift(facts), *([off] if off else [])),
    )


def _nobody(facts: HostFacts) -> str:
    holder = facts.port.holder
    return f"no SGLang server; the port is held by {holder}" if holder else "nothing"


def find_drift(facts: HostFacts) -> list[str]:
    """Files and the server, against the deploy in force: a line for each that is not as it was left."""
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
    return found


def read_gate(facts: HostFacts) -> tuple[str, str]:
    """(what the gate does now, why that is not what was deployed or empty). No word of it is not a yes."""
    current, server = facts.state.current, facts.server
    kind = current.summary.get("gate") if current else None
    if current is None or kind in (None, "none") or server is None:
        return "", ""
    if server.gate_off:
        return "off", f"the gate is off: SGLang said: {server.gate_off}"
    if not server.reported:
        return "unknown: the server does not answer", ""
    internal = server.reported.get("internal") or {}
    if kind == "native":
        return _native_gate(server.reported, internal.get("speculative_num_steps"))
    return _patched_gate(internal.get("speculative_gate"), current.summary.get("threshold"))


def _native_gate(reported: Mapping[str, Any], steps: Any) -> tuple[str, str]:
    if not reported.get("speculative_adaptive"):
        return "off", "the gate is off: the server does not report speculative_adaptive"
    if steps is None:
        return (
            "not reported",
            "the gate's state (speculative_num_steps) is not reported: it cannot be trusted",
        )
    return ("open" if steps else "closed") + f" ({steps} draft steps)", ""


def _patched_gate(gate: Any, threshold: Any) -> tuple[str, str]:
    if not isinstance(gate, Mapping):
        return "off", "the gate is off: the server reports no speculative_gate, so the patch is not active"
    said = f"{gate.get('state', 'in an unknown state')} (threshold {gate.get('threshold')})"
    if threshold is not None and gate.get("threshold") != threshold:
        return said, f"the gate's threshold is {gate.get('threshold')}, deployed was {threshold}"
    return said, ""
