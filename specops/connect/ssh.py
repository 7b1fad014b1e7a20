"""The SSH connector: one hardened paramiko connection, one exec a request, no shell of our own."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from specops.connect.dial import Dialing
from specops.connect.exchange import CHUNK, request
from specops.connect.library import paramiko
from specops.connect.link import Link, open_link
from specops.connect.payload import agent_argv, agent_zip, shell_line
from specops.errors import HostUnreachable

if TYPE_CHECKING:
    from specops.connect.base import OnEvent, Withheld
    from specops.connect.identity import AskPassphrase
    from specops.connect.ssh_settings import SshSettings
    from specops.connect.watchdog import Watchdog

Json = Any


class SshConnector:
    def __init__(
        self,
        *,
        name: str,
        settings: SshSettings | Dialing,
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
        self._opening: Opening | None = None

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
            # Built while the connection is being made.
            agent_zip()
            stream = self._start()
            return request(
                stream, host=self._name, verb=verb, params=params, on_event=on_event, deadline_s=deadline_s
            )

    def prepare(self) -> None:
        """Begin to connect while the caller does something else; the next `call` waits for it."""
        if self._link is None and self._opening is None:
            self._opening = Opening(self._open, self._command)

    def close(self) -> None:
        if self._opening is not None:
            # Nobody waits for it any more: whatever it becomes is ended by its own thread.
            self._opening.abandon()
            self._opening = None
        if isinstance(self._settings, Dialing):
            self._settings.end()
        if self._link is not None:
            self._link.end()
            self._link = None

    def _open(self) -> Link:
        if isinstance(self._settings, Dialing):
            settings, take_socket = self._settings.settings(), self._settings.take_socket
        else:
            settings, take_socket = self._settings, _no_socket
        return open_link(
            self._name, settings, accept_new=self._accept_new, ask=self._ask, take_socket=take_socket
        )

    def _start(self) -> ChannelStream:
        """A started agent; a connection that died since the last request is made anew, once."""
        opening, self._opening = self._opening, None
        if opening is not None:
            self._link, begun = opening.wait()
            if begun is not None:
                return begun
        if self._link is not None:
            try:
                return ChannelStream(*self._link.start(self._command))
            except (paramiko.SSHException, OSError, EOFError):
                self.close()
        self._link = self._open()
        try:
            return ChannelStream(*self._link.start(self._command))
        except (paramiko.SSHException, OSError, EOFError) as error:
            self.close()
            raise HostUnreachable(
                f"{self._name}: connected, but no command could be started: {error}",
                host_state="nothing was changed",
                next_command="check MaxSessions and ForceCommand of the host's sshd",
            ) from error


def _no_socket() -> None:
    """Nothing has been dialled."""


class Opening:
    """A connection that is being made, and the agent on it started, by a thread of their own."""

    def __init__(self, opener: Callable[[], Link], command: str) -> None:
        self._opener = opener
        self._command = command
        self._begun: ChannelStream | None = None
        self._mutex = threading.Lock()
        self._abandoned = False
        self._link: Link | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="specops-opening", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            link = self._opener()
        except BaseException as error:
            self._error = error
            return
        with self._mutex:
            self._link = link
            abandoned = self._abandoned
        if abandoned:
            link.end()
            return
        # A failure is not kept: the request tries again, and says what it meets.
        with contextlib.suppress(paramiko.SSHException, OSError, EOFError):
            self._begun = ChannelStream(*link.start(self._command))

    def wait(self) -> tuple[Link, ChannelStream | None]:
        """With the agent that waits for a request, if it started. Raises what the opening raised."""
        self._thread.join()
        if self._link is None:
            raise self._error or RuntimeError("an opening without an end")
        return self._link, self._begun

    def abandon(self) -> None:
        with self._mutex:
            self._abandoned = True
            link = self._link
        if link is not None:
            link.end()


@contextlib.contextmanager
def _broken_as_pipe() -> Iterator[None]:
    """A link that is reset while paramiko writes is no OSError of its own."""
    try:
        yield
    except (EOFError, paramiko.SSHException) as error:
        raise BrokenPipeError(f"the link broke: {error}") from error


class ChannelStream:
    """exchange.Stream over one SSH channel without a terminal."""

    def __init__(self, channel: paramiko.Channel, watchdog: Watchdog) -> None:
        self._channel = channel
        self._watchdog = watchdog
        channel.settimeout(0.25)

    def write(self, data: bytes) -> None:
        sent = 0
        while sent < len(data):
            try:
                with _broken_as_pipe():
                    count = self._channel.send(data[sent:])
            except TimeoutError:
                # The other side's window is full; the watchdog ends this if it never opens.
                continue
            if count == 0:
                raise BrokenPipeError("the channel is closed")
            sent += count
            self._watchdog.touch()

    def end_input(self) -> None:
        with _broken_as_pipe():
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
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.close()

    def close(self) -> None:
        """The channel is all there is, and `stop` closed it."""
