"""The wire format: one framed request, answered by lines that carry a nonce (ARCHITECTURE, Wire)."""

from __future__ import annotations

import json
import secrets
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from specops.errors import (
    AgentError,
    CheckFailed,
    ConfigError,
    Locked,
    Refused,
    SpecopsError,
    Unfinished,
    UsageError,
)

Json = Any

ERRORS: dict[str, type[SpecopsError]] = {
    "locked": Locked,
    "unfinished": Unfinished,
    "drifted": Refused,
    "refused": Refused,
    "run_already": Refused,
    "not_permitted": Refused,
    "read_only": Refused,
    "newer_state": Refused,
    "no_space": Refused,
    "no_install": Refused,
    "old_python": Refused,
    "no_deploy": Refused,
    "no_log": Refused,
    "no_file": Refused,
    "not_readable": Refused,
    "does_not_compile": Refused,
    "check_failed": CheckFailed,
    "bad_config": ConfigError,
    "usage": UsageError,
}
"""Agent's code -> the error of the controller; any other code stays an AgentError that carries it."""

NOISE_LINES = 20
LONGEST_NOISE = 65536
"""Bytes kept of a line without an end: a remote shell may print without ever breaking the line."""


def new_nonce() -> str:
    """Unguessable, so that nothing else on stdout can pass for an answer."""
    return secrets.token_hex(16)


def frame(agent: bytes, verb: str, params: Mapping[str, Json], nonce: str) -> bytes:
    """All that travels on stdin: header line, the agent's zip, the request."""
    request = json.dumps({"verb": verb, "params": dict(params)}, ensure_ascii=True).encode()
    header = json.dumps({"zip": len(agent), "request": len(request), "nonce": nonce}).encode()
    return header + b"\n" + agent + request


class Answer:
    """Finds our lines in what the remote side prints; keeps the rest as noise for error messages."""

    def __init__(self, nonce: str) -> None:
        self._marker = b"\x1e" + nonce.encode() + b" "
        self._pending = b""
        self._noise: deque[str] = deque(maxlen=NOISE_LINES)
        self.received = False
        """The agent has read the whole request."""
        self.result: dict[str, Json] | None = None

    def feed(self, data: bytes) -> Iterator[dict[str, Json]]:
        """Yield the events that `data` completes; `received` and `result` are kept, not yielded."""
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            event = self._parse(line)
            if event is None:
                continue
            match event.get("event"):
                case "received":
                    self.received = True
                case "result":
                    self.result = event
                case _:
                    yield event
        if len(self._pending) > LONGEST_NOISE and self._marker not in self._pending:
            self._keep_noise(self._pending[:200])
            self._pending = self._pending[-len(self._marker) :]

    def noise(self) -> list[str]:
        """The last lines that were not ours."""
        rest = [] if self._marker in self._pending else [self._pending.decode(errors="replace").strip()]
        return [*self._noise, *(line for line in rest if line)]

    def _parse(self, line: bytes) -> dict[str, Json] | None:
        before, marker, body = line.partition(self._marker)
        self._keep_noise(before)
        if not marker:
            return None
        try:
            event = json.loads(body)
        except ValueError:
            # A line torn by something else that writes to the same stdout; the stream's end will tell.
            self._keep_noise(body[:200])
            return None
        return event if isinstance(event, dict) else None

    def _keep_noise(self, data: bytes) -> None:
        text = data.decode(errors="replace").strip()
        if text:
            self._noise.append(text)


def value_of(result: Mapping[str, Json]) -> Json:
    """The value of an `ok` result; raises the error that the agent named otherwise."""
    if result.get("ok"):
        return result.get("value")
    raise_error(result.get("error") or {})


def raise_error(error: Mapping[str, Json]) -> NoReturn:
    code = str(error.get("code") or "unknown")
    message = str(error.get("message") or f"the agent failed without a message ({code})")
    host_state = str(error.get("host_state") or "")
    next_command = str(error.get("next_command") or "")
    kind = ERRORS.get(code)
    raised: SpecopsError
    if kind is None:
        raised = AgentError(code, message, host_state=host_state, next_command=next_command)
    else:
        raised = kind(message, host_state=host_state, next_command=next_command)
    raised.detail = error.get("detail")
    raised.code = code
    raise raised
