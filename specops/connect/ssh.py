"""The SSH connector: one hardened Fabric connection, one exec a request, no shell of our own."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

import fabric
from paramiko import BadHostKeyException, Channel, SSHConfig, SSHException, Transport
from paramiko.auth_strategy import AuthFailure
from paramiko.ssh_exception import NoValidConnectionsError

from specops.connect.base import OnEvent, Withheld
from specops.connect.exchange import CHUNK, request
from specops.connect.host_keys import changed_key, read_known_keys, teach_client
from specops.connect.identity import AskPassphrase, OfferKeys
from specops.connect.payload import agent_argv, shell_line
from specops.connect.ssh_settings import SshSettings, resolve_settings
from specops.connect.watchdog import Watchdog
from specops.errors import HostUnreachable

# Without a handler of its own, paramiko's tracebacks would go to the operator's terminal.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

Json = Any
CONNECT_S = 10
BANNER_S = 15
AUTH_S = 20
CHANNEL_S = 10
SEND_BUFFER_BYTES = 131072
"""Small, so that bytes taken by the socket mean bytes that move: the watchdog counts on it."""


class SshConnector:
    def __init__(
        self,
        *,
        name: str,
        settings: SshSettings,
        python: str,
        become: str | None = None,
        accept_new_host_key: bool = False,
        ask_passphrase: AskPassphrase | None = None,
    ) -> None:
        self._name = name
        self._settings = settings
        self._command = shell_line(agent_argv(python, become=become))
        self._accept_new = accept_new_host_key
        self._ask = ask_passphrase
        self._lock = threading.Lock()
        self._link: Link | None = None

    @property
    def host(self) -> str:
        return self._name

    def call(
        self,
        verb: str,
        params: Mapping[str, Json],
        *,
        on_event: OnEvent | None = None,
        deadline_s: float | None = None,
    ) -> Json | Withheld:
        with self._lock:
            stream = self._start()
            return request(
                stream, host=self._name, verb=verb, params=params, on_event=on_event, deadline_s=deadline_s
            )

    def close(self) -> None:
        if self._link is not None:
            self._link.end()
            self._link = None

    def _start(self) -> ChannelStream:
        """A started agent; a connection that died since the last request is made anew, once."""
        if self._link is not None:
            try:
                return self._link.start(self._command)
            except (SSHException, OSError, EOFError):
                self.close()
        self._link = Link(
            open_connection(self._name, self._settings, accept_new=self._accept_new, ask=self._ask)
        )
        try:
            return self._link.start(self._command)
        except (SSHException, OSError, EOFError) as error:
            self.close()
            raise HostUnreachable(
                f"{self._name}: connected, but no command could be started: {error}",
                host_state="nothing was changed",
                next_command="check MaxSessions and ForceCommand of the host's sshd",
            ) from error


class Link:
    """A live connection with the watchdog that ends it."""

    def __init__(self, connection: fabric.Connection) -> None:
        self._connection = connection
        self._watchdog = Watchdog(connection.transport)

    def start(self, command: str) -> ChannelStream:
        transport: Transport = self._connection.transport
        channel = transport.open_session(timeout=CHANNEL_S)
        channel.exec_command(command)
        return ChannelStream(channel, self._watchdog)

    def end(self) -> None:
        self._watchdog.end()
        with contextlib.suppress(OSError, EOFError, SSHException):
            self._connection.close()


def open_connection(
    name: str, settings: SshSettings, *, accept_new: bool, ask: AskPassphrase | None
) -> fabric.Connection:
    """A live connection to the host whose key we know, through its jump hosts; else HostUnreachable."""
    gateway: fabric.Connection | str | None = settings.proxy_command
    for hop in settings.jumps:
        through = _jump_settings(hop)
        gateway = _connect(f"jump host {hop} of {name}", through, gateway, accept_new=accept_new, ask=ask)
    return _connect(name, settings, gateway, accept_new=accept_new, ask=ask)


def _jump_settings(hop: str) -> SshSettings:
    bare = hop.removeprefix("ssh://")
    user, _, place = bare.rpartition("@")
    address, _, port = place.rpartition(":") if place.count(":") == 1 else (place, "", "")
    return resolve_settings(address.strip("[]"), port=int(port) if port else None, user=user or None)


def _connect(
    name: str,
    settings: SshSettings,
    gateway: fabric.Connection | str | None,
    *,
    accept_new: bool,
    ask: AskPassphrase | None,
) -> fabric.Connection:
    known = read_known_keys(settings.known_hosts, settings.key_name)
    keys = OfferKeys(settings, ask)
    connection = fabric.Connection(
        settings.hostname,
        user=settings.user,
        port=settings.port,
        gateway=gateway or False,
        # Neither fabric.yml nor ssh_config again: all that counts is in `settings`.
        config=fabric.Config(lazy=True, ssh_config=SSHConfig()),
        connect_timeout=CONNECT_S,
        connect_kwargs={
            "auth_strategy": keys,
            "banner_timeout": BANNER_S,
            "auth_timeout": AUTH_S,
            "channel_timeout": CHANNEL_S,
        },
    )
    port = settings.port
    lookup_name = settings.hostname if port == 22 else f"[{settings.hostname}]:{port}"
    teach_client(connection.client, known, lookup_name=lookup_name, accept_new=accept_new)
    try:
        connection.open()
    except BadHostKeyException as error:
        connection.client.close()
        raise changed_key(known, error.key, error.expected_key) from error
    except BaseException as error:
        connection.client.close()
        raise _unreachable(name, settings, keys, error) from error
    with contextlib.suppress(AttributeError, OSError):
        # A channel or a proxy command in place of a socket has no options.
        connection.transport.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    return connection


def _unreachable(name: str, settings: SshSettings, keys: OfferKeys, error: BaseException) -> BaseException:
    """What became of a connection that did not open, in the operator's words."""
    where = f"{name} ({settings.user}@{settings.hostname}:{settings.port})"
    state = "nothing was changed"
    match error:
        case AuthFailure():
            tried = "; ".join(keys.report) or "there is no key to offer"
            return HostUnreachable(
                f"{where} accepts none of our keys: {tried}",
                host_state=state,
                next_command="set `user` and `identity_file` of this host in inventory.yaml, or ssh-add it",
            )
        case NoValidConnectionsError():
            why = "; ".join(sorted({os.strerror(each.errno or 0) for each in _socket_errors(error)}))
        case TimeoutError():
            why = f"no answer within {CONNECT_S} s"
        case socket.gaierror():
            why = f"the name cannot be resolved: {error.strerror}"
        case OSError() | SSHException() | EOFError():
            why = str(error) or "the host closed the connection"
        case _:
            return error
    return HostUnreachable(
        f"{where} cannot be reached: {why}",
        host_state=state,
        next_command=f"ssh -p {settings.port} {settings.user}@{settings.hostname} true",
    )


def _socket_errors(error: NoValidConnectionsError) -> list[OSError]:
    return [each for each in error.errors.values() if isinstance(each, OSError)]


class ChannelStream:
    """exchange.Stream over one SSH channel without a terminal."""

    def __init__(self, channel: Channel, watchdog: Watchdog) -> None:
        self._channel = channel
        self._watchdog = watchdog
        channel.settimeout(0.25)

    def write(self, data: bytes) -> None:
        sent = 0
        while sent < len(data):
            try:
                count = self._channel.send(data[sent:])
            except TimeoutError:
                # The other side's window is full; the watchdog ends this if it never opens.
                continue
            if count == 0:
                raise BrokenPipeError("the channel is closed")
            sent += count
            self._watchdog.touch()

    def end_input(self) -> None:
        self._channel.shutdown_write()

    def read(self, wait_s: float) -> bytes | None:
        try:
            data = self._channel.recv(CHUNK)
        except TimeoutError:
            return None
        if data:
            self._watchdog.touch()
        return data

    def read_errors(self, wait_s: float) -> bytes | None:
        try:
            return self._channel.recv_stderr(CHUNK)
        except TimeoutError:
            return None

    def exit_status(self) -> int | None:
        """Bounded: paramiko's own wait for it ignores every timeout."""
        end = time.monotonic() + 3
        while not self._channel.exit_status_ready() and time.monotonic() < end:
            time.sleep(0.02)
        status = self._channel.exit_status
        return None if status < 0 else status

    def stop(self) -> None:
        with contextlib.suppress(OSError, EOFError, SSHException):
            self._channel.close()

    def close(self) -> None:
        """The channel is all there is, and `stop` closed it."""
