"""Whether the machine that answers is the one we know: unknown is refused, changed always is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specops.connect.library import paramiko
from specops.errors import ConfigError, HostUnreachable


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownKeys:
    """What the known_hosts files say of one host, in the order of the files."""

    key_name: str
    files: tuple[Path, ...]
    keys: tuple[tuple[Path, paramiko.PKey], ...]

    def file_of(self, key: paramiko.PKey) -> Path:
        return next((path for path, known in self.keys if known == key), self.files[0])


def read_known_keys(files: Sequence[Path], key_name: str) -> KnownKeys:
    found: list[tuple[Path, paramiko.PKey]] = []
    for path in files:
        if not path.is_file():
            continue
        entries = paramiko.HostKeys()
        try:
            entries.load(str(path))
        except (paramiko.hostkeys.InvalidHostKey, OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: not a known_hosts file: {error}") from error
        of_host = entries.lookup(key_name)
        if of_host is not None:
            types = {key.get_name() for _, key in found}
            found.extend((path, key) for kind, key in of_host.items() if kind not in types)
    return KnownKeys(key_name=key_name, files=tuple(files), keys=tuple(found))


def teach_client(client: paramiko.SSHClient, known: KnownKeys, *, lookup_name: str, accept_new: bool) -> None:
    """Put our rule in place of the library's.

    `lookup_name` is what paramiko will look for; it knows nothing of a HostKeyAlias.
    """
    keys = client.get_host_keys()
    keys.clear()
    for _, key in known.keys:
        keys.add(lookup_name, key.get_name(), key)
    client.set_missing_host_key_policy(KnownOrRefused(known, accept_new=accept_new))


class KnownOrRefused(paramiko.MissingHostKeyPolicy):
    def __init__(self, known: KnownKeys, *, accept_new: bool) -> None:
        self._known = known
        self._accept_new = accept_new

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        name, target = self._known.key_name, self._known.files[0]
        if not self._accept_new:
            raise HostUnreachable(
                f"{name} is not a known host; it shows {describe_key(key)}",
                host_state="nothing was sent to it",
                next_command=f"compare that with `ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub` there, then "
                f"repeat with --accept-new-host-key (it adds the key to {target})",
            )
        add_known_key(target, name, key)


def changed_key(known: KnownKeys, got: paramiko.PKey, expected: paramiko.PKey) -> HostUnreachable:
    """The error for a host that shows another key than the one we know; no option accepts it."""
    path = known.file_of(expected)
    return HostUnreachable(
        f"the host key of {known.key_name} has CHANGED: {path} knows {describe_key(expected)}, "
        f"the host shows {describe_key(got)}",
        host_state="nothing was sent to it",
        next_command=f"only if you know why it changed: ssh-keygen -R '{known.key_name}' -f {path}, "
        "then repeat with --accept-new-host-key",
    )


def describe_key(key: paramiko.PKey) -> str:
    return f"{key.get_name()} {key.fingerprint}"


def add_known_key(path: Path, key_name: str, key: paramiko.PKey) -> None:
    """Append one line: rewriting the file would lose its comments and the lines we cannot read."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(f"{key_name} {key.get_name()} {key.get_base64()}\n".encode())
