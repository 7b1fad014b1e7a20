"""The lab's SSH server on 127.0.0.1: OpenSSH where it is installed, else Python. Own keys and port."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from specops.lab.environment import LabError
from specops.lab.processes import start_detached
from specops.lab.state import COOKIE

START_S = 15.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Keys:
    host: Path
    user: Path
    known_hosts: Path
    authorized: Path


def find_sshd() -> str | None:
    return shutil.which("sshd") or next(
        (path for path in ("/usr/sbin/sshd", "/usr/local/sbin/sshd") if os.access(path, os.X_OK)), None
    )


def make_keys(folder: Path, port: int) -> Keys:
    """Made once; known_hosts follows the port."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    keys = Keys(
        host=folder / "host_key",
        user=folder / "user_key",
        known_hosts=folder / "known_hosts",
        authorized=folder / "authorized_keys",
    )
    for path in (keys.host, keys.user):
        if not path.exists():
            _write_key(path)
    keys.authorized.write_text(keys.user.with_suffix(".pub").read_text())
    keys.known_hosts.write_text(f"[127.0.0.1]:{port} {keys.host.with_suffix('.pub').read_text()}")
    return keys


def _write_key(path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(private)
    path.with_suffix(".pub").write_bytes(public + b"\n")


def start_ssh(folder: Path, lab: Path, keys: Keys, port: int, kind: str | None = None) -> str:
    """Start it, wait for its banner, return `openssh` or `python`. `kind` forces one of the two."""
    sshd = find_sshd()
    chosen = kind or ("openssh" if sshd else "python")
    if chosen == "openssh" and sshd:
        argv = [sshd, "-D", "-e", "-f", str(_write_config(folder, lab, keys, port))]
    else:
        argv = [sys.executable, "-m", "specops.lab.pyssh", str(port), str(keys.host), str(keys.authorized)]
    log = folder / "sshd.log"
    process = start_detached(argv, {**os.environ, COOKIE: str(lab)}, log, folder)
    _await_banner(process, port, log)
    return chosen


def _write_config(folder: Path, lab: Path, keys: Keys, port: int) -> Path:
    if os.getuid() == 0:
        # Where sshd separates its privileges; a service's start-up script would have made it.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    path = folder / "sshd_config"
    path.write_text(
        f"Port {port}\n"
        "ListenAddress 127.0.0.1\n"
        f"HostKey {keys.host}\n"
        f"AuthorizedKeysFile {keys.authorized}\n"
        "PidFile none\n"
        "UsePAM no\n"
        "StrictModes no\n"
        "PasswordAuthentication no\n"
        "KbdInteractiveAuthentication no\n"
        "PermitRootLogin prohibit-password\n"
        "MaxStartups 100\n"
        f"SetEnv {COOKIE}={lab}\n"
    )
    return path


def _await_banner(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        if banner(port).startswith("SSH-2.0-"):
            return
        time.sleep(0.1)
    words = log.read_text(errors="replace").strip().splitlines()[-2:]
    raise LabError(
        f"the lab's SSH server did not come up on port {port}: {' / '.join(words) or 'no log'}",
        host_state="nothing serves in the lab",
        next_command=f"read {log}",
    )


def banner(port: int) -> str:
    """The first line that the server says, empty where nobody listens."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as link:
            return link.recv(255).decode(errors="replace").strip()
    except OSError:
        return ""


def user() -> str:
    return getpass.getuser()
