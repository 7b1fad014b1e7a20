"""The first steps to a host, taken by a thread of their own while the SSH library is being loaded."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

from specops.connect.ssh_settings import SshSettings

CONNECT_S = 10


class Dialing:
    """Works out the settings, then makes the TCP connection where it is to go straight to the host."""

    def __init__(self, settle: Callable[[], SshSettings]) -> None:
        self._settle = settle
        self._settings: SshSettings | None = None
        self._socket: socket.socket | None = None
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
        except BaseException as error:
            self._error = error
            return
        with self._mutex:
            self._socket = made
            if self._ended:
                made.close()

    def settings(self) -> SshSettings:
        """Raises what `settle` raised."""
        self._thread.join()
        if self._settings is None:
            raise self._error or RuntimeError("no settings")
        return self._settings

    def take_socket(self) -> socket.socket | None:
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
