"""Ends a dead link: paramiko's own keepalive wants no answer and so never notices silence."""

from __future__ import annotations

import threading
import time

from specops.connect.library import paramiko

ASK_EVERY_S = 3.0
SILENT_AT_MOST_S = 11.0
"""Together under 15 s from the last sign of life to the closed transport."""


class Watchdog:
    """Asks the server for an answer every few seconds and closes the transport when none comes.

    Every server answers an unknown global request, if only with a refusal (RFC 4254, section 4).
    """

    def __init__(self, transport: paramiko.Transport) -> None:
        self._transport = transport
        self._last_sign = time.monotonic()
        self._ended = threading.Event()
        self.barked = False
        for target in (self._ask, self._watch):
            threading.Thread(target=target, name="specops-watchdog", daemon=True).start()

    def touch(self) -> None:
        """Something arrived, or was taken by the socket: the link lives even if answers queue behind it."""
        self._last_sign = time.monotonic()

    def end(self) -> None:
        self._ended.set()

    def _ask(self) -> None:
        while not self._ended.wait(ASK_EVERY_S):
            try:
                self._transport.global_request("keepalive@openssh.com", wait=True)
            except (paramiko.SSHException, OSError, EOFError):
                return
            if not self._transport.is_active():
                return
            self.touch()

    def _watch(self) -> None:
        while not self._ended.wait(0.5):
            if not self._transport.is_active():
                return
            if time.monotonic() - self._last_sign > SILENT_AT_MOST_S:
                self.barked = True
                self._transport.close()
                return
