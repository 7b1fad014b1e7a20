"""Disks that fill up or become read-only, and folders that an unprivileged agent may not write any more."""

from __future__ import annotations

import contextlib
import ctypes
import encodings.idna
import functools
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from specops.remote import evidence, facts

LOADED_BEFORE = (encodings.idna, tarfile, evidence, facts)
"""An agent that drops its user in this process cannot load what the library has in somebody's home."""
SOMEBODY = 54321
"""A user that exists only as a number, for agents without privileges where the tests run as root."""
SIZE = "6m"
PR_SET_DUMPABLE = 4


@functools.cache
def become_root() -> tuple[str, ...] | None:
    """What a command starts with that needs root; None where there is no way to be root."""
    if os.geteuid() == 0:
        return ()
    sudo = shutil.which("sudo")
    if sudo and subprocess.run([sudo, "-n", "true"], capture_output=True, check=False).returncode == 0:
        return (sudo, "-n")
    return None


def require_root() -> None:
    """Mounting needs it. Where tests run by themselves a skip would go unseen, so there it is a failure."""
    if become_root() is None:
        if os.environ.get("CI"):
            pytest.fail("no root and no sudo without a password: full and read-only disks cannot be tried")
        pytest.skip("mounting a disk to fill needs root, or sudo without a password")


def _as_root(*argv: str) -> None:
    prefix = become_root()
    assert prefix is not None
    subprocess.run([*prefix, *argv], check=True, capture_output=True, text=True)


def mount(folder: Path) -> None:
    """A small disk in memory, for whoever runs the tests."""
    folder.mkdir(parents=True, exist_ok=True)
    options = f"size={SIZE},mode=0755,uid={os.getuid()},gid={os.getgid()}"
    _as_root("mount", "-t", "tmpfs", "-o", options, "specops-faults", str(folder))


def unmount(folder: Path) -> None:
    _as_root("umount", "--lazy", str(folder))


def make_read_only(folder: Path) -> None:
    """By a second mount over the first, which its open files would keep from being changed."""
    _as_root("mount", "--bind", str(folder), str(folder))
    _as_root("mount", "-o", "remount,bind,ro", str(folder))


def fill(folder: Path) -> None:
    """Until not one byte more is taken."""
    with open(folder / "filler", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 65536)
    with open(folder / "filler", "ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x")


def free(folder: Path) -> None:
    (folder / "filler").unlink()


def forbid(folder: Path) -> dict[Path, os.stat_result]:
    """No folder at or below this one may be written by the agent's user; the modes and owners of before."""
    before = {path: path.stat() for path in (folder, *folder.rglob("*")) if path.is_dir()}
    for path in before:
        path.chmod(0o555)
        if os.geteuid() == 0:
            os.chown(path, 0, 0)
    return before


def allow(before: dict[Path, os.stat_result]) -> None:
    for path, was in before.items():
        if path.exists():
            if os.geteuid() == 0:
                os.chown(path, was.st_uid, was.st_gid)
            path.chmod(was.st_mode & 0o7777)


def unprivileged() -> int:
    """The user to run an agent as that may not do everything; 0 means: whoever runs the tests."""
    return SOMEBODY if os.geteuid() == 0 else 0


def dropping(uid: int, then: Callable[[], object] = lambda: None) -> Callable[[], None]:
    """In the process of a request, before anything else."""

    def drop() -> None:
        if uid:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            # A process that changed its user may not look into its own /proc; one that was started may.
            ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
        then()

    return drop


@functools.cache
def python_for(uid: int) -> str:
    """An interpreter that this user may run: that of the tests can lie in somebody's home."""
    import sys

    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        with contextlib.suppress(OSError):
            done = subprocess.run(
                [python, "-S", "-c", ""], user=uid or None, capture_output=True, check=False
            )
            if done.returncode == 0:
                return python
    raise AssertionError(f"no Python that user {uid} may run")
