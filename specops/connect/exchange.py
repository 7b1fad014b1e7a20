"""One request and its answer over two pipes; the same for a local child and for an SSH channel."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from specops.connect.base import READS, OnEvent
from specops.connect.payload import agent_zip
from specops.connect.wire import Answer, frame, new_nonce, value_of
from specops.errors import AgentError, HostUnreachable, LinkLost, Refused

Json = Any
POLL_S = 0.25
CHUNK = 32768
ERROR_LINES = 20


class Stream(Protocol):
    """A started remote command. Every method may be called from its own thread."""

    def write(self, data: bytes) -> None:
        """Blocks until all is handed over; OSError once the other side is gone."""

    def end_input(self) -> None: ...

    def read(self, wait_s: float) -> bytes | None:
        """What stdout holds; None if nothing came within `wait_s`, b"" at its end."""

    def read_errors(self, wait_s: float) -> bytes | None:
        """As `read`, for stderr."""

    def exit_status(self) -> int | None:
        """None if the link went, or a signal ended the command: the two look alike."""

    def stop(self) -> None:
        """End the command, if it still runs; what it detached lives on. Unblocks the other methods."""

    def close(self) -> None:
        """Give back what the stream holds, once no thread uses it any more."""


@dataclass(slots=True)
class _Exchange:
    stream: Stream
    answer: Answer
    sent: bool = False
    """The last byte was handed over; before that the agent cannot have understood the request."""
    done: threading.Event = field(default_factory=threading.Event)
    errors: deque[str] = field(default_factory=lambda: deque(maxlen=ERROR_LINES))

    def write(self, data: bytes) -> None:
        try:
            for start in range(0, len(data), CHUNK):
                self.stream.write(data[start : start + CHUNK])
            self.sent = True
            self.stream.end_input()
        except OSError:
            # The reader sees the end of the stream and tells what happened.
            return

    def drain_errors(self) -> None:
        """stderr shares the channel's window with stdout: unread, it would stop the answer."""
        pending = b""
        while not self.done.is_set():
            try:
                data = self.stream.read_errors(POLL_S)
            except OSError:
                break
            if data is None:
                continue
            if not data:
                break
            *lines, pending = (pending + data).split(b"\n")
            self.errors.extend(text for line in lines if (text := line.decode(errors="replace").strip()))
            pending = pending[-CHUNK:]
        if text := pending.decode(errors="replace").strip():
            self.errors.append(text)

    def read_answer(self, on_event: OnEvent | None, deadline_s: float | None) -> bool:
        """True when the result or the end of the stream came, False when the deadline came first."""
        end = None if deadline_s is None else time.monotonic() + deadline_s
        while self.answer.result is None:
            if end is not None and time.monotonic() > end:
                return False
            data = self.stream.read(POLL_S)
            if data is None:
                continue
            if not data:
                return True
            for event in self.answer.feed(data):
                if on_event is not None:
                    on_event(event)
        return True


def request(
    stream: Stream,
    *,
    host: str,
    verb: str,
    params: Mapping[str, Json],
    on_event: OnEvent | None,
    deadline_s: float | None,
) -> Json:
    """Send one request over a started agent and return its value; the stream is closed afterwards."""
    nonce = new_nonce()
    exchange = _Exchange(stream=stream, answer=Answer(nonce))
    writer = _start(exchange.write, frame(agent_zip(), verb, params, nonce))
    drainer = _start(exchange.drain_errors)
    status: int | None = None
    in_time = False
    try:
        in_time = exchange.read_answer(on_event, deadline_s)
        if in_time and exchange.answer.result is None:
            status = stream.exit_status()
            drainer.join(timeout=2)
    finally:
        exchange.done.set()
        stream.stop()
        writer.join(timeout=2)
        drainer.join(timeout=2)
        stream.close()
    if exchange.answer.result is not None:
        return value_of(exchange.answer.result)
    if not in_time:
        raise LinkLost(
            f"{host}: no answer to `{verb}` within {deadline_s:g} s",
            host_state=_unknown(verb),
            next_command="specops status",
        )
    raise _ending(exchange, host=host, verb=verb, status=status)


def _ending(exchange: _Exchange, *, host: str, verb: str, status: int | None) -> Exception:
    """The error for a stream that ended without a result, by how far the request had come."""
    said = "; ".join([*exchange.answer.noise(), *exchange.errors][-3:])
    if not exchange.answer.received:
        if status is not None and "sudo:" in said:
            return Refused(
                f"{host}: sudo does not let this user become another without a password: {said}",
                host_state="nothing was changed",
                next_command="allow it in sudoers (NOPASSWD), or change `become` in inventory.yaml",
            )
        if status is not None:
            return Refused(
                f"{host}: the agent did not start (exit status {status}): {said or 'nothing was printed'}",
                host_state="nothing was changed",
                next_command="set `python` (and `become`) of this host in inventory.yaml to what works there",
            )
        if not exchange.sent:
            return HostUnreachable(
                f"{host}: the link broke before the request was sent",
                host_state="nothing was changed",
                next_command="specops status",
            )
    if status is not None and verb in READS:
        return AgentError(
            "agent_died",
            f"{host}: the agent ended during `{verb}` without an answer (exit status {status}): "
            f"{said or 'nothing was printed'}",
            host_state="nothing was changed",
        )
    how = "the link broke" if status is None else f"the agent ended without an answer ({said})"
    return LinkLost(
        f"{host}: {how} during `{verb}`", host_state=_unknown(verb), next_command="specops attach"
    )


def _unknown(verb: str) -> str:
    if verb in READS:
        return f"`{verb}` only reads: nothing was changed by it"
    return "unknown from here: what was started goes on by itself, and the host's journal knows how it ends"


def _start(target: Callable[..., None], *args: Any) -> threading.Thread:
    thread = threading.Thread(target=target, args=args, daemon=True)
    thread.start()
    return thread
