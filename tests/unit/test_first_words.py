"""What the first round trips to a host are spent on: nothing waits that need not."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import paramiko
import pytest

from specops.connect.dial import GREETING, Dialing
from specops.connect.link import open_link
from specops.connect.ssh_settings import SshSettings
from specops.connect.transport import Transport
from specops.errors import HostUnreachable

WAIT_S = 20
# What is watched is no part of what the library promises, nor of its types.
HostAuth: Any = paramiko.auth_handler.AuthHandler


class Admits(paramiko.ServerInterface):
    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return paramiko.common.AUTH_SUCCESSFUL

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"


def settings_of(port: int) -> SshSettings:
    return SshSettings(
        address="127.0.0.1",
        hostname="127.0.0.1",
        port=port,
        user="someone",
        identity_files=(),
        only_these_identities=True,
        known_hosts=(Path("/nowhere"),),
        key_name="127.0.0.1",
    )


def test_the_host_is_greeted_before_the_library_speaks_and_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(WAIT_S)
        dialing = Dialing(lambda: settings_of(listener.getsockname()[1]))
        host, _ = listener.accept()
        with host:
            host.settimeout(WAIT_S)
            greeting = f"{GREETING}\r\n".encode()
            assert host.recv(len(greeting), socket.MSG_WAITALL) == greeting
            client = Transport(dialing.take_socket())
            client.start_client(event=threading.Event())
            host.sendall(b"SSH-2.0-host\r\n")
            # RFC 4253, 6: a packet's length and padding come first, then its kind; 20 is KEXINIT.
            assert host.recv(6, socket.MSG_WAITALL)[5] == 20
            client.close()
            client.join(WAIT_S)


def test_a_listener_that_is_no_ssh_is_named_so(tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text("")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        settings = replace(settings_of(listener.getsockname()[1]), known_hosts=(known,))
        dialing = Dialing(lambda: settings)
        host, _ = listener.accept()
        host.recv(64)
        host.close()
        with pytest.raises(HostUnreachable, match="before it said that it is SSH") as error:
            open_link("box", settings, accept_new=False, ask=None, take_socket=dialing.take_socket)
    assert error.value.host_state == "nothing was changed"


@pytest.mark.parametrize("kind", ["ecdsa", "rsa"])
def test_the_login_is_asked_for_before_its_service_is_granted(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An RSA key waits: how it is used is for the host to say first."""
    grant = HostAuth._parse_service_request
    asked_early, granted = threading.Event(), threading.Event()

    def hold(handler: Any, message: paramiko.Message) -> None:
        """Never grants it to the key that should not wait for that."""
        if kind == "rsa":
            granted.set()
            grant(handler, message)

    read = HostAuth._parse_userauth_request

    def note(handler: Any, message: paramiko.Message) -> None:
        if not granted.is_set():
            asked_early.set()
        handler.auth_username = None
        read(handler, message)

    monkeypatch.setattr(HostAuth, "_parse_service_request", hold)
    monkeypatch.setattr(HostAuth, "_parse_userauth_request", note)
    key = paramiko.ECDSAKey.generate() if kind == "ecdsa" else paramiko.RSAKey.generate(2048)
    ours, theirs = socket.socketpair()
    server, client = paramiko.Transport(theirs), Transport(ours)
    server.add_server_key(paramiko.ECDSAKey.generate())
    try:
        server.start_server(event=threading.Event(), server=Admits())
        client.start_client(timeout=WAIT_S)
        client.auth_timeout = WAIT_S
        assert client.auth_publickey("someone", key) == []
        assert client.is_authenticated()
        assert asked_early.is_set() == (kind == "ecdsa")
    finally:
        for end in (client, server):
            end.close()
            end.join(WAIT_S)
