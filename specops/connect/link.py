"""A live SSH connection to a host whose key we know, through its jump hosts."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
from collections.abc import Callable
from typing import Any

from specops.connect.dial import CONNECT_S, Greeted
from specops.connect.host_keys import changed_key, read_known_keys, teach_client
from specops.connect.identity import AskPassphrase, OfferKeys
from specops.connect.library import paramiko
from specops.connect.proxy_command import ProxyCommand
from specops.connect.ssh_settings import SshSettings, resolve_settings
from specops.connect.transport import Transport
from specops.connect.watchdog import Watchdog
from specops.errors import ConfigError, HostUnreachable

# Without a handler of its own, paramiko's tracebacks would go to the operator's terminal.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

BANNER_S = 12
AUTH_S = 14
CHANNEL_S = 10
SEND_BUFFER_BYTES = 131072
"""Small, so that bytes taken by the socket mean bytes that move: the watchdog counts on it."""
TakeSocket = Callable[[], Greeted | None]
SAID = {
    "Error reading SSH protocol banner": "what listens there ended it before it said that it is SSH",
    "No existing session": f"it listens, but did not agree on keys within {CONNECT_S} s",
}
"""What the library says, by how it begins -> what it means."""
MOST_JUMPS = 8
HOP = re.compile(r"(?:(?P<user>.+)@)?(?:\[(?P<v6>[^\]]+)\]|(?P<name>[^:\[\]]+))(?::(?P<port>\d+))?")


class Link:
    """A connection, what it goes through, and the watchdog that ends it."""

    def __init__(self) -> None:
        self._parts: list[paramiko.SSHClient | ProxyCommand] = []
        self._watchdog: Watchdog | None = None

    def add(self, part: paramiko.SSHClient | ProxyCommand) -> None:
        self._parts.append(part)

    def end_of_way(self) -> ProxyCommand | paramiko.SSHClient | None:
        return self._parts[-1] if self._parts else None

    @property
    def transport(self) -> paramiko.Transport:
        client = self._parts[-1]
        transport = None if isinstance(client, ProxyCommand) else client.get_transport()
        if transport is None:
            raise paramiko.SSHException("not connected")
        return transport

    def start(self, command: str) -> tuple[paramiko.Channel, Watchdog]:
        if self._watchdog is None:
            self._watchdog = Watchdog(self.transport)
        channel = self.transport.open_session(timeout=CHANNEL_S)
        _begin(channel, command)
        return channel, self._watchdog

    def end(self) -> None:
        if self._watchdog is not None:
            self._watchdog.end()
        for part in reversed(self._parts):
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                part.close()


def _begin(channel: paramiko.Channel, command: str) -> None:
    """As `exec_command`, without the round trip that it waits for the answer.

    A refusal closes the channel, and that is what the reader sees then.
    """
    request = paramiko.Message()
    request.add_byte(paramiko.common.cMSG_CHANNEL_REQUEST)
    request.add_int(channel.remote_chanid)
    request.add_string("exec")
    request.add_boolean(True)
    request.add_string(command)
    transport: Any = channel.get_transport()
    transport._send_user_message(request)


def open_link(
    name: str,
    settings: SshSettings,
    *,
    accept_new: bool,
    ask: AskPassphrase | None,
    take_socket: TakeSocket,
) -> Link:
    """Raises HostUnreachable, for the host itself or for one on the way to it.

    `take_socket` gives a connection to the host that was made already, or None.
    """
    link = Link()
    try:
        way = [(f"jump host {hop} of {name}", through) for hop, through in list_jumps(settings)]
        for who, through in [*way, (name, settings)]:
            if through.proxy_command and link.end_of_way() is None:
                link.add(ProxyCommand(through))
            keys = OfferKeys(through, ask)
            link.add(_connect(who, through, link, keys, accept_new=accept_new, take_socket=take_socket))
    except BaseException:
        link.end()
        raise
    end: Any = link.transport.sock
    with contextlib.suppress(AttributeError, OSError):
        # A channel in place of a socket has no options.
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    return link


def list_jumps(settings: SshSettings) -> list[tuple[str, SshSettings]]:
    """In the order to go. As with `ssh -J`, only the first one's own ProxyJump counts."""
    jumps = [(hop, _jump_settings(hop)) for hop in settings.jumps]
    while jumps and jumps[0][1].jumps:
        jumps = [*((hop, _jump_settings(hop)) for hop in jumps[0][1].jumps), *jumps]
        if len(jumps) > MOST_JUMPS:
            names = " -> ".join(hop for hop, _ in jumps)
            raise ConfigError(f"ssh_config: ProxyJump of {settings.address} goes in a circle: {names}")
    return jumps


def _jump_settings(hop: str) -> SshSettings:
    found = HOP.fullmatch(hop.removeprefix("ssh://"))
    if found is None:
        raise ConfigError(f"ssh_config: ProxyJump {hop}: not [user@]host[:port]")
    port = found["port"]
    return resolve_settings(
        found["v6"] or found["name"], port=int(port) if port else None, user=found["user"]
    )


def _connect(
    name: str,
    settings: SshSettings,
    link: Link,
    keys: OfferKeys,
    *,
    accept_new: bool,
    take_socket: TakeSocket,
) -> paramiko.SSHClient:
    known = read_known_keys(settings.known_hosts, settings.key_name)
    client = paramiko.SSHClient()
    lookup_name = settings.hostname if settings.port == 22 else f"[{settings.hostname}]:{settings.port}"
    teach_client(client, known, lookup_name=lookup_name, accept_new=accept_new)
    through = link.end_of_way()
    try:
        made: Any = _socket_through(through, settings) or take_socket()
        client.connect(
            settings.hostname,
            port=settings.port,
            username=settings.user,
            sock=made,
            timeout=CONNECT_S,
            banner_timeout=BANNER_S,
            auth_timeout=AUTH_S,
            channel_timeout=CHANNEL_S,
            auth_strategy=keys,
            transport_factory=Transport,
        )
    except paramiko.BadHostKeyException as error:
        client.close()
        raise changed_key(known, error.key, error.expected_key) from error
    except BaseException as error:
        client.close()
        said = through.said if isinstance(through, ProxyCommand) else str
        raise _unreachable(name, settings, keys, error, said) from error
    return client


def _socket_through(through: ProxyCommand | paramiko.SSHClient | None, settings: SshSettings) -> Any:
    """What stands in for a TCP connection of our own; None where there is to be one."""
    if through is None or isinstance(through, ProxyCommand):
        return through and through.socket
    transport = through.get_transport()
    if transport is None:
        raise paramiko.SSHException("the jump host closed the connection")
    place = (settings.hostname, settings.port)
    return transport.open_channel("direct-tcpip", place, ("127.0.0.1", 0), timeout=CONNECT_S)


def _unreachable(
    name: str, settings: SshSettings, keys: OfferKeys, error: BaseException, said: Callable[[], str]
) -> BaseException:
    """What became of a connection that did not open, in the operator's words."""
    where = f"{name} ({settings.user}@{settings.hostname}:{settings.port})"
    state = "nothing was changed"
    match error:
        case paramiko.auth_strategy.AuthFailure():
            tried = "; ".join(keys.report) or "there is no key to offer"
            return HostUnreachable(
                f"{where} accepts none of our keys: {tried}",
                host_state=state,
                next_command="set `user` and `identity_file` of this host in inventory.yaml, or ssh-add it",
            )
        case paramiko.ssh_exception.NoValidConnectionsError():
            why = "; ".join(sorted({os.strerror(each.errno or 0) for each in _socket_errors(error)}))
        case TimeoutError():
            why = f"no answer within {CONNECT_S} s"
        case socket.gaierror():
            why = f"the name cannot be resolved: {error.strerror}"
        case OSError() | paramiko.SSHException() | EOFError():
            plain = getattr(error, "strerror", None) or str(error)
            plain = next((words for start, words in SAID.items() if plain.startswith(start)), plain)
            why = "; ".join(filter(None, (plain or "the host closed the connection", said())))
        case _:
            return error
    return HostUnreachable(
        f"{where} cannot be reached: {why}",
        host_state=state,
        next_command=f"ssh -p {settings.port} {settings.user}@{settings.hostname} true",
    )


def _socket_errors(error: paramiko.ssh_exception.NoValidConnectionsError) -> list[OSError]:
    return [each for each in error.errors.values() if isinstance(each, OSError)]
