"""paramiko's connection, saying who we are and asking for the login in one go."""

from __future__ import annotations

import threading
from typing import Any

from specops.connect.dial import GREETING
from specops.connect.library import paramiko

# Its methods that are overridden here are no part of what the library promises, nor of its types.
AuthHandler: Any = paramiko.auth_handler.AuthHandler


class Transport(paramiko.Transport):
    """As paramiko's, with our greeting, and one round trip less to log in."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.local_version = GREETING

    def auth_publickey(
        self, username: str, key: paramiko.PKey, event: threading.Event | None = None
    ) -> list[str]:
        """As paramiko's; `event` is not used."""
        if not self.is_active():
            raise paramiko.SSHException("the host closed the connection")
        # How an RSA key is used is said by the host after the key exchange: that has to be here first.
        kind = AuthHandler if "rsa" in key.get_name() else EagerAuth
        self.auth_handler = handler = kind(self)
        answered = threading.Event()
        handler.auth_publickey(username, key, answered)
        allowed: list[str] = handler.wait_for_response(answered)
        return allowed


class EagerAuth(AuthHandler):  # type: ignore[misc]
    """Asks to log in right behind its request for that service, not a round trip later.

    A server takes up what it reads in order, so it has granted the service by the time it reads the rest.
    """

    def _request_auth(self) -> None:
        super()._request_auth()
        granted = paramiko.Message()
        granted.add_string("ssh-userauth")
        granted.rewind()
        super()._parse_service_accept(granted)

    def _parse_service_accept(self, message: paramiko.Message) -> None:
        """Was taken for granted."""
