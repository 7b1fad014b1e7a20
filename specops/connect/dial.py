"""The first steps to a host, taken by a thread of their own while the SSH library is being loaded.

They end with our line of the protocol (RFC 4253, 4.2): the host answers it, and begins the key exchange,
before the library that will read that is there. A round trip less.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from specops import __version__

if TYPE_CHECKING:
    from specops.connect.ssh_settings import SshSettings

CONNECT_S = 10
GREETING = f"SSH-2.0-specops_{__version__.replace('-', '_')}"


class Greeted:
    """A connected socket on which GREETING was sent, for a library that will send it again."""

    def __init__(self, made: socket.socket) -> None:
        self._made = made
        self.send: Callable[[bytes], int] = self._swallow_greeting

    def _swallow_greeting(self, data: bytes) -> int:
        """Once: from then on `send` is the socket's own."""
        self.send = self._made.send
        return len(data) if data == f"{GREETING}\r\n".encode() else self.send(data)

    def __getattr__(self, name: str) -> Any:
        """All else is the socket's."""
        return getattr(self._made, name)


class Dialing:
    """Works out the settings, then makes the TCP connection where it is to go straight to the host."""

    def __init__(self, settle: Callable[[], SshSettings]) -> None:
        self._settle = settle
        self._settings: SshSettings | None = None
        self._socket: Greeted | None = None
        self._error: BaseException | None = None
        self._ended = False
        self._mutex = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="specops-dialing", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._settings = settings = self._settle()
            if settings.jumps or settings.proxy_command:
                return
            made = socket.create_connection((settings.hostname, settings.port), timeout=CONNECT_S)
            try:
                made.sendall(f"{GREETING}\r\n".encode())
            except OSError:
                made.close()
                raise
        except BaseException as error:
            self._error = error
            return
        with self._mutex:
            self._socket = Greeted(made)
            if self._ended:
                made.close()

    def settings(self) -> SshSettings:
        """Raises what `settle` raised."""
        self._thread.join()
        if self._settings is None:
            raise self._error or RuntimeError("no settings")
        return self._settings

    def take_socket(self) -> Greeted | None:
        """Once; None where there is none to have. Raises OSError where the host cannot be reached."""
        self._thread.join()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        made, self._socket = self._socket, None
        return made

    def end(self) -> None:
        """Close what was not taken, now or when it comes to be."""
        with self._mutex:
            self._ended = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.close()
