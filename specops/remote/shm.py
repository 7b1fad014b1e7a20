"""Shared memory below /dev/shm that a stopped server would leave behind.

SGLang's launcher kills its workers, and who is killed removes nothing: each restart left segments and
semaphores there, which are memory. What a server's processes held goes once nobody has it mapped.
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import state

Json = Any
FOLDER = "/dev/shm/"  # noqa: S108
NAMED = re.compile(r"sem\.loky-(\d+)-")
OWN = re.compile(r"sem\.mp-|sglang_loads_")
INIT_PIDS = 0xEFFFFFFC
"""Inode of the first pid namespace (linux/proc_ns.h): no process is outside of it."""
KEPT = "shared-memory.json"
"""In the deploy's folder: what each server had mapped while it loaded, by cookie. A process that died takes
its maps along."""
LOOK_S = 0.5


def mapped_by(pids: Iterable[int]) -> set[str]:
    """Paths below /dev/shm that these processes have mapped, as far as their maps may be read.

    By inode: who made a semaphore has it mapped under the name that it had before it got its own (glibc).
    """
    names = _inodes()
    found: set[str] = set()
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            if FOLDER in line:
                _, _, _, device, inode, *_ = line.split(maxsplit=5)
                found.update(names.get((device, inode), ()))
    return found


def _inodes() -> dict[tuple[str, str], list[str]]:
    """(device, inode), as maps write them -> the paths of that file below /dev/shm."""
    found: dict[tuple[str, str], list[str]] = {}
    try:
        device = os.stat(FOLDER).st_dev
        entries = list(os.scandir(FOLDER))
    except OSError:
        return found
    for entry in entries:
        key = (f"{os.major(device):02x}:{os.minor(device):02x}", str(entry.inode()))
        found.setdefault(key, []).append(entry.path)
    return found


def held_by(pids: Iterable[int]) -> set[str]:
    """What these processes have mapped, and semaphores that are named after one of them (joblib's loky): a
    process may have closed such a one, which does not remove it."""
    known = set(pids)
    try:
        names = os.listdir(FOLDER)
    except OSError:
        names = []
    named = ((name, NAMED.match(name)) for name in names)
    own = {FOLDER + name for name, match in named if match and int(match.group(1)) in known}
    return own | mapped_by(known)


def keep(deploy_dir: Path, cookie: str, pids: Iterable[int]) -> None:
    """Note what a server holds, for the day that it dies by itself."""
    known = state.read_json(deploy_dir / KEPT) or {}
    before = set(known.get(cookie) or ())
    now = before | held_by(pids)
    if now != before or cookie not in known:
        known[cookie] = sorted(now)
        state.write_private(deploy_dir / KEPT, json.dumps(known).encode())


def kept(deploy_dir: Path, cookie: str) -> set[str]:
    return set((state.read_json(deploy_dir / KEPT) or {}).get(cookie) or ())


@dataclass
class Watch:
    """Keeps what the processes of a loading server hold, twice a second at most."""

    deploy_dir: Path
    cookie: str
    _next: float = 0.0

    def look(self, pids: Iterable[int]) -> None:
        if time.monotonic() >= self._next:
            keep(self.deploy_dir, self.cookie, pids)
            self._next = time.monotonic() + LOOK_S


def noting(find: Callable[[], set[tuple[int, int]]], shared: set[str]) -> Callable[[], set[tuple[int, int]]]:
    """`find` (pid, start ticks), which adds to `shared` what they hold: some make more while they stop."""

    def look() -> set[tuple[int, int]]:
        found = find()
        shared.update(held_by(pid for pid, _ in found))
        return found

    return look


def orphans() -> set[str]:
    """Semaphores and segments that only SGLang and Python's multiprocessing make, and that nobody has mapped.

    Their makers have them mapped for as long as they are of use, so these are left over: of a process that
    died before it was looked at. Only where every process of the machine can be seen.
    """
    try:
        if os.stat("/proc/self/ns/pid").st_ino != INIT_PIDS:
            return set()
        named = {FOLDER + name for name in os.listdir(FOLDER) if OWN.match(name)}
    except OSError:
        return set()
    return named - mapped_by(int(name) for name in os.listdir("/proc") if name.isdigit()) if named else set()


def remove_unused(paths: Iterable[str], since: float) -> list[str]:
    """Remove those that appeared since then (unix seconds) and that no process has mapped any more.

    Left alone: what is not this user's (root: anybody's), and what users share whose maps we cannot see.
    """
    ours = [path for path in paths if _is_ours(path, since)]
    if not ours:
        return []
    used = mapped_by(int(name) for name in os.listdir("/proc") if name.isdigit())
    removed = []
    for path in sorted(set(ours) - used):
        try:
            os.unlink(path)
        except OSError:
            continue
        removed.append(path)
    return removed


def _is_ours(path: str, since: float) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    private = os.geteuid() == 0 or (found.st_uid == os.geteuid() and not found.st_mode & 0o066)
    return stat.S_ISREG(found.st_mode) and found.st_ctime >= since - 1 and private
