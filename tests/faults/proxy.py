"""A TCP proxy that strikes its first connection: delays, drops, black-holes, truncates, delivers too late."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from dataclasses import dataclass

TICK_S = 0.02
CHUNK = 16384
RECEIVE_BUFFER = 16384
"""Small, so that what the proxy does not take stays with the sender, as on a real link."""
LATE_S = 5.0
NOW = struct.pack("ii", 1, 0)
"""SO_LINGER: closing sends RST."""


@dataclass(frozen=True)
class Blow:
    kind: str
    """`delay`, `drop` (RST), `black hole`, `truncate` (half of what comes, then FIN), `late`."""
    for_good: bool = False
    """New connections have no better luck."""
    delay_s: float = 1.0


class Proxy:
    """Listens on 127.0.0.1:`port`. `late`: what was sent arrives once there is a second connection."""

    def __init__(self, target: int) -> None:
        self.connections = 0
        self.from_client = 0
        """Bytes that the first connection's client sent and that were passed on."""
        self.deaf_after: int | None = None
        """From so many of them on its client hears nothing, until the blow falls."""
        self._target = target
        self._armed: tuple[int, Blow] | None = None
        self._blow: Blow | None = None
        self._fell = 0.0
        self._kept = b""
        """Of the client's, because the blow fell between: it is passed on if anything still is."""
        self._closed = threading.Event()
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(16)
        self._listener.settimeout(TICK_S)
        self.port = int(self._listener.getsockname()[1])
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def fell(self) -> bool:
        return self._blow is not None

    def strike_after(self, count: int, blow: Blow) -> None:
        """When the client has sent so many bytes."""
        self._armed = (count, blow)

    def strike(self, blow: Blow) -> None:
        self._fell = time.monotonic()
        self._blow = blow

    def close(self) -> None:
        self._closed.set()
        for thread in self._threads:
            thread.join(timeout=10)
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            self.connections += 1
            first = self.connections == 1
            serve = self._serve_first if first else self._serve_next
            thread = threading.Thread(target=serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve_next(self, client: socket.socket) -> None:
        blow = self._blow
        with client:
            if blow is not None and blow.for_good:
                if blow.kind == "black hole":
                    self._closed.wait()
                elif blow.kind == "drop":
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NOW)
                return
            with socket.create_connection(("127.0.0.1", self._target)) as server:
                while not self._closed.is_set():
                    for ready in select.select([client, server], [], [], TICK_S)[0]:
                        data = _receive(ready)
                        if not data or not _send(server if ready is client else client, data):
                            return

    def _serve_first(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._target)) as server:
            while not self._closed.is_set():
                if self._holds():
                    time.sleep(TICK_S)
                    continue
                if self._blow is not None and self._blow.kind == "drop":
                    for end in (client, server):
                        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NOW)
                    return
                if self._kept:
                    data, self._kept = self._kept, b""
                    _send(server, data)
                for ready in select.select(self._heard(client, server), [], [], TICK_S)[0]:
                    if not self._move(ready, client, server):
                        return

    def _move(self, ready: socket.socket, client: socket.socket, server: socket.socket) -> bool:
        """Pass on what came; False once the connection is to end."""
        data, before = _receive(ready), self._blow
        other = server if ready is client else client
        if not data:
            if before is not None and before.kind == "late" and ready is client:
                # sshd would drop what it has not handed on yet.
                self._closed.wait(LATE_S)
            return False
        if before is not None and before.kind == "truncate":
            _send(other, data[: len(data) // 2])
            return False
        if ready is client:
            data, self._kept = self._count(data)
        # Of a client that went away, what it sent still arrives.
        sent = _send(other, data) or (before is not None and before.kind == "late")
        return sent and (self._blow is before or self._blow is None or self._blow.kind != "truncate")

    def _holds(self) -> bool:
        """Whether nothing moves at this moment."""
        blow = self._blow
        if blow is None:
            return False
        if blow.kind == "delay":
            return time.monotonic() < self._fell + blow.delay_s
        return blow.kind == "black hole" or (blow.kind == "late" and self.connections < 2)

    def _heard(self, client: socket.socket, server: socket.socket) -> list[socket.socket]:
        deaf = self.deaf_after is not None and self.from_client > self.deaf_after
        return [client] if deaf and self._blow is None else [client, server]

    def _count(self, data: bytes) -> tuple[bytes, bytes]:
        """(what is passed on now, what is kept)."""
        armed = self._armed
        self.from_client += len(data)
        if armed is None or self._blow is not None or self.from_client <= armed[0]:
            return data, b""
        left = len(data) - (self.from_client - armed[0])
        self.strike(armed[1])
        return data[:left], data[left:]


def _receive(end: socket.socket) -> bytes:
    with contextlib.suppress(OSError):
        return end.recv(CHUNK)
    return b""


def _send(end: socket.socket, data: bytes) -> bool:
    with contextlib.suppress(OSError):
        end.sendall(data)
        return True
    return False
