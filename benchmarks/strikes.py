"""What strikes a server in `benchmarks.diagnose`: signals to its parts, and a stranger on its port."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from specops.remote import procs

LOADING = "Load weight begin"
PATIENCE_S = 400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """The server as whoever strikes at it sees it."""

    pid: int
    port: int
    log: Path
    ended: Callable[[], bool]

    def await_line(self, literal: str) -> None:
        """Raises TimeoutError; also when the round is over before the line came."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and not self.ended():
            if literal in self.log.read_text(errors="replace"):
                return
            time.sleep(0.05)
        raise TimeoutError(f"no line {literal!r}")

    def worker(self, part: str) -> int:
        for pid in sorted(procs.children_of(self.pid)):
            title = " ".join(procs.read_argv(pid)[:1])
            if title.startswith("sglang::") and part in title:
                return pid
        raise LookupError(f"the server has no {part}")


Strike = Callable[[Running], float]
"""Does the harm and returns when (unix seconds)."""


def signal_worker(part: str, number: signal.Signals, when: str) -> Strike:
    def strike(server: Running) -> float:
        server.await_line(when)
        pid = server.worker(part)
        at = time.time()
        os.kill(pid, number)
        return at

    return strike


def await_words(words: str) -> Strike:
    """No harm of its own: only the moment from which the failure's own clock holds."""

    def strike(server: Running) -> float:
        server.await_line(words)
        return time.time()

    return strike


def kill_launcher(server: Running) -> float:
    server.await_line(LOADING)
    at = time.time()
    os.kill(server.pid, signal.SIGKILL)
    return at


def take_port(server: Running) -> float:
    """A stranger binds the server's port while it loads."""
    server.await_line(LOADING)
    hold(server.port)
    return time.time()


SQUATTERS: list[socket.socket] = []
"""Sockets that keep a port until the round is over."""


def hold(port: int) -> None:
    squatter = socket.socket()
    SQUATTERS.append(squatter)
    squatter.bind(("127.0.0.1", port))
    squatter.listen()
