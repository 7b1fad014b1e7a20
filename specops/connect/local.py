"""The local connector: the agent as a child process of this machine, over the same wire."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from specops.connect.exchange import CHUNK, request
from specops.connect.payload import agent_argv
from specops.errors import Refused

if TYPE_CHECKING:
    from specops.connect.base import OnEvent, Withheld

Json = Any
EXIT_WAIT_S = 5.0


class LocalConnector:
    def __init__(self, *, name: str, python: str, become: str | None = None) -> None:
        self._name = name
        self._argv = agent_argv(os.path.expanduser(python), become=become)
        self._lock = threading.Lock()

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
            return request(
                self._start(),
                host=self._name,
                verb=verb,
                params=params,
                on_event=on_event,
                deadline_s=deadline_s,
            )

    def close(self) -> None:
        """Nothing is kept open between requests."""

    def _start(self) -> ChildStream:
        try:
            # Its own session: Ctrl-C in this terminal is the controller's to answer, not the agent's.
            child = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise Refused(
                f"{self._name}: cannot start {self._argv[0]}: {error.strerror}",
                host_state="nothing was changed",
                next_command="set `python` of this host in inventory.yaml to a Python 3.10 or newer",
            ) from error
        return ChildStream(child)


class ChildStream:
    """exchange.Stream over a child's pipes."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        if child.stdin is None or child.stdout is None or child.stderr is None:
            raise ValueError("a child without its three pipes")
        self._child = child
        self._stdin, self._stdout, self._stderr = child.stdin, child.stdout, child.stderr

    def write(self, data: bytes) -> None:
        try:
            self._stdin.write(data)
            self._stdin.flush()
        except ValueError as error:
            raise BrokenPipeError("closed on this side") from error

    def end_input(self) -> None:
        self._stdin.close()

    def read(self, wait_s: float) -> bytes | None:
        return _read(self._stdout.fileno(), wait_s)

    def read_errors(self, wait_s: float) -> bytes | None:
        return _read(self._stderr.fileno(), wait_s)

    def exit_status(self) -> int | None:
        try:
            status = self._child.wait(timeout=EXIT_WAIT_S)
        except subprocess.TimeoutExpired:
            return None
        return None if status < 0 else status

    def stop(self) -> None:
        try:
            self._child.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            # Under `become` it is another user's: closing its pipes has to do.
            with contextlib.suppress(PermissionError):
                self._child.kill()

    def close(self) -> None:
        for pipe in (self._stdin, self._stdout, self._stderr):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(timeout=EXIT_WAIT_S)


def _read(fd: int, wait_s: float) -> bytes | None:
    ready, _, _ = select.select([fd], [], [], wait_s)
    return os.read(fd, CHUNK) if ready else None
