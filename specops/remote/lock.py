"""The lock of an instance: a listening socket that tells whoever connects who holds it.

Abstract, so the kernel frees it with its last holder and there is no file to go stale; close-on-exec, so
no server ever inherits it; and the same name for every user of the machine.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from . import procs, state
from .context import OpFailed
from .state import Instance

Json = Any
ANSWER_S = 3.0
Owner = Callable[[], "dict[str, Json]"]


def address(instance: Instance) -> str:
    return f"\0specops/{state.machine_id()}/{instance.key}"


def describe_owner(*, pid: int, deploy: str | None, phase: str, since: float, why: str) -> dict[str, Json]:
    process = procs.read_process(pid)
    return {
        "user": state.user_name(),
        "uid": os.getuid(),
        "host": socket.gethostname(),
        "pid": pid,
        "start_ticks": process.start_ticks if process else None,
        "boot_id": state.boot_id(),
        "deploy": deploy,
        "phase": phase,
        "since": since,
        "why": why,
    }


class Lock:
    """A held lock. A fork shares it: it is free when every process that shares it closed it or died."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._listener.setblocking(False)

    def fileno(self) -> int:
        return self._listener.fileno()

    def answer(self, owner: Owner) -> None:
        """Serve whoever is waiting now; never blocks for long, never raises."""
        while True:
            try:
                asking, _ = self._listener.accept()
            except OSError:
                return
            with asking, contextlib.suppress(OSError, ValueError):
                asking.settimeout(1.0)
                asking.sendall(json.dumps(owner()).encode() + b"\n")

    def answer_in_thread(self, owner: Owner, when: Callable[[], bool] = lambda: True) -> None:
        """Answer for the rest of this process's life, while `when` holds."""

        def serve() -> None:
            while self._listener.fileno() >= 0:
                if when():
                    self.answer(owner)
                time.sleep(0.1)

        threading.Thread(target=serve, name="lock", daemon=True).start()

    def close(self) -> None:
        self._listener.close()


def take(instance: Instance) -> Lock:
    """Raises `locked`, with the owner as its detail."""
    for _ in range(5):
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            listener.bind(address(instance))
            listener.listen(16)
            return Lock(listener)
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE:
                raise state.io_failed(error, "take the lock", "nothing was changed") from error
        owner = read_owner(instance)
        if owner is not None:
            raise held(owner)
        time.sleep(0.1)  # its holder ended between our two looks
    raise held({})


def read_owner(instance: Instance) -> dict[str, Json] | None:
    """Who holds the lock now; None when it is free, an empty dict when its holder does not answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(ANSWER_S)
        try:
            asking.connect(address(instance))
            answer = b""
            while not answer.endswith(b"\n"):
                data = asking.recv(4096)
                if not data:
                    break
                answer += data
            owner = json.loads(answer)
        except ConnectionRefusedError:
            return None
        except (OSError, ValueError):
            return {}
    return owner if isinstance(owner, dict) else {}


def held(owner: dict[str, Json]) -> OpFailed:
    if owner.get("pid"):
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(float(owner.get("since") or 0)))
        what = f"deploy {owner['deploy']}" if owner.get("deploy") else str(owner.get("why") or "a request")
        holder = f"{owner.get('user')}@{owner.get('host')} (pid {owner['pid']})"
        who = f"{holder} since {since}: {what}, in {owner.get('phase')}"
    else:
        who = "a process that does not answer"
    return OpFailed(
        "locked",
        f"the instance is held by {who}",
        detail=owner,
        host_state="nothing was changed by this request",
        next_command="specops attach, or: specops lock break --reason …",
    )
