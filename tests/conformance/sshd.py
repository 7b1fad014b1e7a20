"""A real OpenSSH sshd on loopback with keys of its own, and a TCP relay that can go silent."""

from __future__ import annotations

import contextlib
import getpass
import os
import select
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def make_key(path: Path, *, passphrase: str = "") -> Path:
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", path.name, "-f", str(path)]
    subprocess.run(argv, check=True)
    return path


class Sshd:
    """Runs until closed; `known_hosts` holds its key, `identity` logs the current user in."""

    def __init__(self, folder: Path, port: int, *, options: tuple[str, ...] = ()) -> None:
        assert SSHD is not None, "install openssh-server: these tests want the real sshd"
        self.folder, self.port, self.user = folder, port, getpass.getuser()
        folder.mkdir(parents=True, exist_ok=True)
        if os.getuid() == 0:
            # The privilege separation folder of a root sshd, made by the init script where one runs.
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self.host_key = folder / "host_key"
        if not self.host_key.exists():
            make_key(self.host_key)
            make_key(folder / "identity")
        self.identity = folder / "identity"
        self.known_hosts = folder / "known_hosts"
        self.known_hosts.write_text(self.known_line())
        config = folder / "sshd_config"
        config.write_text(
            "\n".join(
                (
                    f"Port {port}",
                    "ListenAddress 127.0.0.1",
                    f"HostKey {self.host_key}",
                    f"AuthorizedKeysFile {folder}/identity.pub {folder}/more_keys",
                    "StrictModes no",
                    "UsePAM no",
                    "PasswordAuthentication no",
                    "KbdInteractiveAuthentication no",
                    "PidFile none",
                    *options,
                    "",
                )
            )
        )
        self._log = (folder / "sshd.log").open("ab")
        self._child = subprocess.Popen([SSHD, "-D", "-e", "-f", str(config)], stderr=self._log)
        self.banner = self._await()

    @property
    def pid(self) -> int:
        return self._child.pid

    def known_line(self, *, port: int | None = None, key: Path | None = None) -> str:
        kind, blob, *_ = (key or self.host_key).with_suffix(".pub").read_text().split()
        return f"[127.0.0.1]:{port or self.port} {kind} {blob}\n"

    def fingerprint(self) -> str:
        argv = ["ssh-keygen", "-lf", f"{self.host_key}.pub"]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()[1]

    def _await(self) -> str:
        end = time.monotonic() + 10
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=2) as client:
                    return client.recv(100).decode().strip()
            except OSError:
                assert self._child.poll() is None, (self.folder / "sshd.log").read_text()
                assert time.monotonic() < end, "sshd does not answer"
                time.sleep(0.05)

    def close(self) -> None:
        self._child.terminate()
        self._child.wait(timeout=10)
        self._log.close()

    def __enter__(self) -> Sshd:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Relay:
    """Passes bytes on between 127.0.0.1:`port` and `target`, until told to swallow them in silence."""

    def __init__(self, port: int, target: int) -> None:
        self.connections = 0
        self.silent = threading.Event()
        self.silent_after: int | None = None
        """Bytes from the client in all, after which the link is dead."""
        self._from_client = 0
        self._target = target
        self._closed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", port))
        self._listener.settimeout(0.1)
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            self.connections += 1
            server = socket.create_connection(("127.0.0.1", self._target))
            thread = threading.Thread(target=self._pass_on, args=(client, server), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        other = {client: server, server: client}
        with client, server, contextlib.suppress(OSError):
            while not self._closed.is_set():
                for ready in select.select([client, server], [], [], 0.1)[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    if ready is client:
                        self._from_client += len(data)
                    if self.silent_after is not None and self._from_client > self.silent_after:
                        self.silent.set()
                    if not self.silent.is_set():
                        other[ready].sendall(data)

    def close(self) -> None:
        """Also ends what is connected: nobody can be reached through it any more."""
        self._closed.set()
        for thread in self._threads:
            thread.join(timeout=5)
        self._listener.close()
