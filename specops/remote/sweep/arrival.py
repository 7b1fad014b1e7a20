"""Arrival: when bytes were there to be read, and not when the one who waits for them had its turn.

Of 250 streams that speak at once the last one's turn comes when all others were read and heeded.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class Arrivals(selectors.DefaultSelector):
    """An event loop reads in one pass all sockets that it was told have something. Who waits for those bytes
    runs in the next pass, which has asked again by then: they had come at the look before the newest one."""

    def __init__(self) -> None:
        super().__init__()
        self._before = self.newest = time.monotonic()
        """When the loop last asked: of the bytes that a protocol is just given."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(timeout)
        self._before, self.newest = self.newest, time.monotonic()
        return found

    def came(self) -> float:
        """Monotonic seconds, of the bytes that the running task has just been woken for."""
        return self._before


def run(task: Coroutine[Any, Any, Result], arrivals: Arrivals) -> Result:
    """As `asyncio.run`, in a loop that asks `arrivals`."""
    loop = asyncio.SelectorEventLoop(arrivals)
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(task)
    finally:
        left = asyncio.all_tasks(loop)
        for each in left:
            each.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        asyncio.set_event_loop(None)
        loop.close()
