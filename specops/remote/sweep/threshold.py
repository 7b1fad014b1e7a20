"""The live control of the batch gate: T changed while serving, read back, and put back in the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aiohttp

from ..smoke.load import Client

Json = Any
PATH = "/set_internal_state"
KEY = "speculative_disable_batch_threshold"


class NotTaken(Exception):
    """The server did not do as it was told."""


class Threshold:
    def __init__(self, asking: Client, info_path: str) -> None:
        self._asking = asking
        self._info_path = info_path
        self._original: int | None = None
        self._now: int | None = None

    async def set(self, threshold: int, emit: Callable[[dict[str, Json]], None]) -> None:
        """Raises NotTaken unless the server says that it has taken it."""
        if self._original is None:
            self._original = self._now = await self._read()
            if self._original is None:
                raise NotTaken(
                    "this server has no live control of its threshold (the batch gate's patch brings one)"
                )
            # whoever started this child puts it back if the child cannot
            emit({"event": "threshold", "was": self._original})
        if threshold == self._now:
            return
        await self._write(threshold)
        self._now = await self._read()
        if self._now != threshold:
            raise NotTaken(f"the gate was told threshold {threshold} and says {self._now}")

    async def put_back(self) -> None:
        """Never raises."""
        if self._original is not None and self._now != self._original:
            try:
                await self._write(self._original)
                self._now = await self._read()
            except NotTaken:
                return

    async def _read(self) -> int | None:
        info = await self._asking.get_json(self._info_path, 10.0)
        states = info.get("internal_states") if isinstance(info, dict) else None
        gate = states[0].get("speculative_gate") if isinstance(states, list) and states else None
        value = gate.get("threshold") if isinstance(gate, dict) else None
        return value if isinstance(value, int) else None

    async def _write(self, threshold: int) -> None:
        body = {"server_args": {KEY: threshold}}
        try:
            async with self._asking.session.post(self._asking.spec.url + PATH, json=body) as response:
                text = await response.text()
        except (aiohttp.ClientError, OSError) as error:
            raise NotTaken(f"the gate cannot be told its threshold: {error}") from None
        if response.status != 200 or "true" not in text.lower():
            raise NotTaken(f"the gate refused threshold {threshold}: {text[:200]}")
