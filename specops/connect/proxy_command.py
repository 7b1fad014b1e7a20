"""A ProxyCommand of the user's ssh_config, run as OpenSSH runs it, at one end of a pair of sockets."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import tempfile
from typing import TYPE_CHECKING

from specops.errors import ConfigError

if TYPE_CHECKING:
    from specops.connect.ssh_settings import SshSettings

PLAIN = re.compile(r"[A-Za-z0-9_.:%@+-]*")
"""What a name may hold that is filled into the command: the user's shell reads it."""
UNCHANGED = "nothing was changed"
END_S = 2.0
SHOWN_BYTES = 400


class ProxyCommand:
    def __init__(self, settings: SshSettings) -> None:
        self.command = fill_tokens(settings.proxy_command or "", settings)
        ours, theirs = socket.socketpair()
        # A file and no pipe: a command that talks much must not stop for want of a reader.
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `close`)
        shell = os.environ.get("SHELL") or "/bin/sh"
        with theirs:
            self._child = subprocess.Popen(
                [shell, "-c", f"exec {self.command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._said,
                start_new_session=True,
            )
        self.socket = ours

    def said(self) -> str:
        """The end of what it wrote to stderr."""
        size = self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, size - SHOWN_BYTES))
        return " ".join(self._said.read().decode(errors="replace").split())

    def close(self) -> None:
        self.socket.close()
        for number in (signal.SIGTERM, signal.SIGKILL, None):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(timeout=END_S)
                break
            if number is not None:
                os.killpg(self._child.pid, number)
        self._said.close()


def fill_tokens(command: str, settings: SshSettings) -> str:
    """%h, %n, %p, %r and %% (ssh_config(5), TOKENS); raises ConfigError for any other, or an unsafe name."""
    values = {
        "h": settings.hostname,
        "n": settings.address,
        "p": str(settings.port),
        "r": settings.user,
        "%": "%",
    }
    where = f"ssh_config: ProxyCommand of {settings.address}"

    def fill(match: re.Match[str]) -> str:
        token = match[1]
        value = values.get(token)
        if value is None:
            raise ConfigError(f"{where}: %{token} is not filled in here", host_state=UNCHANGED)
        if not PLAIN.fullmatch(value) or value.startswith("-"):
            raise ConfigError(f"{where}: {value!r} cannot go into a command", host_state=UNCHANGED)
        return value

    return re.sub(r"%(.)", fill, command)
