"""What only reads: history, status, logs, locks, evidence."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from specops.facts.host import HostFacts, read_host_facts

if TYPE_CHECKING:
    from specops.connect.base import Connector
    from specops.engine.place import Place

Json = Any


def facts(place: Place, connector: Connector, *, paths: tuple[str, ...] = ()) -> HostFacts:
    return read_host_facts(connector, place.question(paths=paths))


def history(place: Place, connector: Connector, limit: int | None = None) -> Json:
    """{"deploys": newest first, "stack": ids in force, newest first}."""
    return connector.call("history", {"instance": place.reference(), "limit": limit})


def lock(place: Place, connector: Connector) -> Json:
    """The owner, or None."""
    answer = connector.call("lock_show", {"instance": place.reference()})
    return answer.get("lock") if isinstance(answer, dict) else None


def logs(
    place: Place,
    connector: Connector,
    *,
    deploy: str | None,
    which: str = "server",
    lines: int = 200,
    offset: int | None = None,
) -> Json:
    """{deploy, which, path, offset, next_offset, text}; from `offset` on, else the last `lines`."""
    params = {"instance": place.reference(), "deploy": deploy, "which": which, "lines": lines}
    return connector.call("logs", {**params, **({"offset": offset} if offset is not None else {})})


def evidence(place: Place, connector: Connector, deploy: str | None) -> tuple[str, bytes]:
    """The deploy's id and its evidence bundle, a tar.gz."""
    answer = connector.call("evidence", {"instance": place.reference(), "deploy": deploy})
    if not isinstance(answer, dict):
        raise TypeError(f"evidence: not an object: {answer!r}")
    return str(answer["deploy"]), base64.b64decode(answer["base64"])


def clean(place: Place, connector: Connector, keep: int) -> Json:
    return connector.call("clean", {"instance": place.reference(), "keep": keep})
