"""One file replaced in one step: a reader sees the old bytes or the new, a dead writer leaves no mix."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from . import state
from .store import digest_file

NEW_FILE_MODE = 0o644


def temp_of(target: Path, mark: str) -> Path:
    """Deterministic, so that whoever settles a deploy finds what its dead writer left."""
    return target.with_name(f".{target.name}.specops-{mark}")


def write(target: Path, data: bytes, mark: str) -> None:
    """Same-directory temp, fsync, rename, fsync of the directory; mode, owner and attributes are kept."""
    temp = temp_of(target, mark)
    temp.unlink(missing_ok=True)
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            _keep_attributes(target, fd)
            file.flush()
            os.fsync(fd)
        os.replace(temp, target)
    except BaseException:
        temp.unlink(missing_ok=True)
        raise
    state.fsync_folder(target.parent)
    drop_bytecode(target)


def remove(target: Path) -> None:
    target.unlink(missing_ok=True)
    state.fsync_folder(target.parent)
    drop_bytecode(target)


def _keep_attributes(target: Path, fd: int) -> None:
    try:
        old = target.stat()
    except FileNotFoundError:
        folder = target.parent.stat()
        if os.geteuid() == 0:
            os.fchown(fd, folder.st_uid, folder.st_gid)
        os.fchmod(fd, NEW_FILE_MODE)
        return
    now = os.fstat(fd)
    if (old.st_uid, old.st_gid) != (now.st_uid, now.st_gid):
        os.fchown(fd, old.st_uid, old.st_gid)
    os.fchmod(fd, stat.S_IMODE(old.st_mode))
    # Labels and ACLs; a filesystem without them, or a label that only root may set, is no reason to stop.
    with contextlib.suppress(OSError):
        for name in os.listxattr(target):
            with contextlib.suppress(OSError):
                os.setxattr(fd, name, os.getxattr(target, name))


def drop_bytecode(target: Path) -> None:
    """Forget what was compiled from other bytes of this module.

    Bytecode is checked by size and whole seconds of mtime, or not at all: two versions written within
    one second look the same to it.
    """
    if target.suffix == ".py":
        for compiled in (target.parent / "__pycache__").glob(f"{target.stem}.*.pyc"):
            compiled.unlink(missing_ok=True)


def make_folders(folder: Path) -> list[Path]:
    """Those that are missing, outermost first; nothing is created yet."""
    missing: list[Path] = []
    while not folder.exists():
        missing.insert(0, folder)
        folder = folder.parent
    return missing


def resolve(path: str) -> Path:
    """Behind every link, so that a link stays a link."""
    return Path(os.path.realpath(path))


def digest(target: Path) -> str | None:
    return digest_file(target)
