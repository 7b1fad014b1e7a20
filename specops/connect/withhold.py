"""The connector of a dry run: reads go through, changes are kept back and told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specops.connect.base import READS, Connector, OnEvent, Withheld

Json = Any


class WithholdingConnector:
    """Wraps another connector; the code that uses it is the same as for a real run."""

    def __init__(self, inner: Connector) -> None:
        self._inner = inner
        self.withheld: list[Withheld] = []

    @property
    def host(self) -> str:
        return self._inner.host

    def call(
        self,
        verb: str,
        params: Mapping[str, Json],
        *,
        on_event: OnEvent | None = None,
        deadline_s: float | None = None,
    ) -> Json | Withheld:
        if verb in READS:
            return self._inner.call(verb, params, on_event=on_event, deadline_s=deadline_s)
        withheld = Withheld(verb=verb, params=params)
        self.withheld.append(withheld)
        return withheld

    def close(self) -> None:
        self._inner.close()
