"""Answers to the controller: JSON lines that carry the request's nonce (ARCHITECTURE, Wire)."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Callable
from typing import Any

from .context import OpFailed

Json = Any
Emit = Callable[[dict[str, Json]], None]


class Answers:
    """Writes to stdout until nobody reads it any more; from then on it is silent and all else goes on."""

    def __init__(self, nonce: str, *, fd: int = 1) -> None:
        self._mark = f"\x1e{nonce} "
        self._fd = fd
        self._gone = False

    def emit(self, event: dict[str, Json]) -> None:
        if self._gone:
            return
        data = (self._mark + json.dumps(event, ensure_ascii=True) + "\n").encode()
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            self._gone = True

    def value(self, value: Json) -> None:
        self.emit({"event": "result", "ok": True, "value": value})

    def error(self, error: OpFailed) -> None:
        self.emit({"event": "result", "ok": False, "error": error.as_json()})

    def gone(self) -> bool:
        """True once the reader closed its end: a killed controller or a dead link."""
        if not self._gone:
            watch = select.poll()
            watch.register(self._fd, 0)
            self._gone = any(mask & (select.POLLERR | select.POLLHUP) for _, mask in watch.poll(0))
        return self._gone
