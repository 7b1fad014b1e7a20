"""Where things lie on this machine: its id, an instance's key and folders, and who is asking."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import pwd
import re
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .context import OpFailed

Json = Any
DEFAULT_STATE = "~/.local/state/specops"
DEPLOY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
LOOKUP_S = 30.0


@dataclass(frozen=True)
class Instance:
    """One SGLang install and one port on this machine."""

    port: int
    root: Path
    """Realpath of the install's sglang folder."""
    machine: Path
    """`<state>/<machine-id>`: homes are shared over NFS, other machines' journals are not ours."""

    @property
    def key(self) -> str:
        return f"{self.port}-{hashlib.sha256(os.fsencode(self.root)).hexdigest()[:8]}"

    @property
    def deploys(self) -> Path:
        return self.machine / "instances" / self.key / "deploys"

    @property
    def sweeps(self) -> Path:
        return self.deploys.parent / "sweeps"

    @property
    def smokes(self) -> Path:
        return self.deploys.parent / "smokes"

    @property
    def store(self) -> Path:
        return self.machine / "store"

    @property
    def agents(self) -> Path:
        return self.machine / "agents"

    def deploy(self, deploy_id: str) -> Path:
        if not DEPLOY_ID.fullmatch(deploy_id):
            raise OpFailed("usage", f"not a deploy id: {deploy_id!r}")
        return self.deploys / deploy_id


def open_instance(params: dict[str, Json]) -> Instance:
    """From an instance reference, in `params` itself or under its `instance`.

    Raises `no_install` where the interpreter has no sglang, `usage` where the reference is incomplete.
    """
    ref = params.get("instance") or params
    try:
        port = int(ref["port"])
        python = str(ref["python"])
    except (KeyError, TypeError, ValueError) as error:
        raise OpFailed("usage", f"not an instance reference (port, python): {error}") from error
    root = (
        Path(os.path.realpath(os.path.expanduser(str(ref["root"])))) if ref.get("root") else find_root(python)
    )
    state = Path(os.path.expanduser(str(ref.get("state") or DEFAULT_STATE)))
    return Instance(port=port, root=root, machine=Path(os.path.abspath(state)) / machine_id())


def find_root(python: str) -> Path:
    """Realpath of the sglang folder that `python` imports; looked up without importing it."""
    path = Path(os.path.expanduser(python))
    near = [
        found.parent for found in path.parent.parent.glob("lib/python3*/site-packages/sglang/__init__.py")
    ]
    if len(near) == 1:
        return Path(os.path.realpath(near[0]))
    code = (
        "import importlib.util as u; s = u.find_spec('sglang'); print(list(s.submodule_search_locations)[0])"
    )
    try:
        done = subprocess.run(
            [str(path), "-I", "-B", "-c", code], capture_output=True, text=True, timeout=LOOKUP_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OpFailed(
            "no_install", f"{python} cannot be run: {error}", host_state="nothing was changed"
        ) from error
    folder = done.stdout.strip()
    if done.returncode != 0 or not folder:
        raise OpFailed(
            "no_install",
            f"{python} has no sglang",
            host_state="nothing was changed",
            next_command="set `python` of this host to the interpreter of the SGLang install",
        )
    return Path(os.path.realpath(folder))


def machine_id() -> str:
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        with contextlib.suppress(OSError):
            text = Path(path).read_text().strip()
            if re.fullmatch(r"[0-9a-f]{32}", text):
                return text
    # Minimal containers have none; the host's name is the next best thing that lasts.
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:32]


def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def user_name(uid: int | None = None) -> str:
    try:
        return pwd.getpwuid(os.getuid() if uid is None else uid).pw_name
    except KeyError:
        return str(os.getuid() if uid is None else uid)


def expand(text: str, *, deploy_dir: Path, machine: Path) -> str:
    """`{deploy_dir}`, `{state}` (this machine's folder in it) and a leading `~` of a path or an argument."""
    text = text.replace("{deploy_dir}", str(deploy_dir)).replace("{state}", str(machine))
    return os.path.expanduser(text)


def make_private(folder: Path) -> None:
    """Create `folder` and what is missing above it, each 0700; what exists keeps its mode."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
            fsync_folder(path.parent)


def fsync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_private(path: Path, data: bytes) -> None:
    """Durable and in one step, mode 0600: a reader sees the old bytes or the new ones."""
    temp = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temp, path)
    except BaseException:
        temp.unlink(missing_ok=True)
        raise
    fsync_folder(path.parent)


def read_json(path: Path) -> Json:
    """None where the file is missing or not JSON."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


@contextlib.contextmanager
def naming_io_errors(what: str, host_state: str = "") -> Iterator[None]:
    """Turn an OSError into an OpFailed that says which path, and what a person can do about it."""
    try:
        yield
    except OSError as error:
        raise io_failed(error, what, host_state) from error


IO_CODES = {
    errno.EACCES: "not_permitted",
    errno.EPERM: "not_permitted",
    errno.EROFS: "read_only",
    errno.ENOSPC: "no_space",
    errno.EDQUOT: "no_space",
    errno.EFBIG: "no_space",
}
"""Anything else is `io_error`."""
IO_NEXT = {
    "not_permitted": "set `become` for this host in inventory.yaml, or `activation: copy` in the playbook",
    "read_only": "remount it writable, or set `activation: copy` in the playbook",
    "no_space": "free space there, then: specops clean",
    "io_error": "specops facts",
}


def io_failed(error: OSError, what: str, host_state: str = "") -> OpFailed:
    code = IO_CODES.get(error.errno or 0, "io_error")
    where = f" {error.filename}" if error.filename and str(error.filename) not in what else ""
    message = f"cannot {what}{where}: {os.strerror(error.errno) if error.errno else error}"
    return OpFailed(code, message, host_state=host_state, next_command=IO_NEXT[code])
