"""Shared memory below /dev/shm that a stopped server would leave behind.

SGLang's launcher kills its workers, and who is killed removes nothing: each restart left segments and
semaphores there, which are memory. What a server's processes held goes once nobody has it mapped.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import state

Json = Any
FOLDER = "/dev/shm/"  # noqa: S108
NAMED = re.compile(r"sem\.loky-(\d+)-")
KEPT = "shared-memory.json"
"""In the deploy's folder: what each server had mapped when it was ready, by cookie. A server that died
takes its maps along."""


def mapped_by(pids: Iterable[int]) -> set[str]:
    """Paths below /dev/shm that these processes have mapped, as far as their maps may be read."""
    found: set[str] = set()
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
        except OSError:
            continue
        paths = (line.split(maxsplit=5)[-1] for line in lines if FOLDER in line)
        found |= {path for path in paths if path.startswith(FOLDER) and not path.endswith(" (deleted)")}
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
    known[cookie] = sorted(held_by(pids))
    state.write_private(deploy_dir / KEPT, json.dumps(known).encode())


def kept(deploy_dir: Path, cookie: str) -> set[str]:
    return set((state.read_json(deploy_dir / KEPT) or {}).get(cookie) or ())


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
