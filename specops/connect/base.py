"""The seam between controller and host: one protocol, the same for SSH, local and dry runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Json = Any
"""A value that `json.dumps` takes. Parsed into dataclasses at the edge (specops.facts, engine.outcome)."""

OnEvent = Callable[[dict[str, Json]], None]
"""Called for each event line of a request, in order, before the result."""

READS = frozenset({"facts", "follow", "history", "status", "logs", "lock_show", "evidence", "read_file"})
"""Verbs that change nothing on a host; a withholding connector lets just these through."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Withheld:
    """What a dry run gets instead of an answer: the request that was not sent."""

    verb: str
    params: Mapping[str, Json]


class Connector(Protocol):
    """One way to reach one host. Thread-safe for one request at a time."""

    @property
    def host(self) -> str:
        """The name to show: the inventory's, else the address."""

    def call(
        self,
        verb: str,
        params: Mapping[str, Json],
        *,
        on_event: OnEvent | None = None,
        deadline_s: float | None = None,
    ) -> Json | Withheld:
        """Send one request to the agent and return its result.

        Raises HostUnreachable before the request was sent (nothing changed), LinkLost after it,
        and the error named by the agent's code otherwise (see specops.connect.wire.ERRORS).
        """

    def close(self) -> None:
        """End the connection; harmless twice."""
