"""A note that every user of the machine can read: a deploy of this install has not ended.

The lock says so only while somebody holds it, and a state folder only to its owner. A note lies in a folder
of its writer below /var/tmp, which a reboot leaves alone; whose it is, the kernel says and not the note. It
holds no more than the lock tells everybody, and nothing is ever done because of one: it is only shown.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import journal, lock, state
from .state import DEPLOY_ID, Instance

Json = Any
BOARD = Path("/var/tmp")  # noqa: S108 (each user's notes are in a folder that only they can write)
PREFIX = "specops-"
PLACE = re.compile(r"/[\w./@+=:,-]{1,400}")
"""Of a folder that may be shown: a stranger's bytes go to somebody's terminal."""
LARGEST = 4096
TRIES = 5


def put(instance: Instance, deploy_id: str) -> None:
    """Never raises: without a note it is as if nobody else were there."""
    note = {"machine": state.machine_id(), "port": instance.port, "deploy": deploy_id}
    note |= {"folder": str(instance.deploy(deploy_id)), "since": time.time()}
    for _ in range(TRIES):
        try:
            with _own_folder(make=True) as folder:
                _write(folder, _name(instance, deploy_id), json.dumps(note).encode())
            return
        except FileNotFoundError:
            continue  # another deploy of ours has just removed the folder, which was empty
        except OSError:
            return


def _write(folder: int, name: str, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, 0o600, dir_fd=folder)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)
        os.fchmod(fd, 0o644)


def drop(instance: Instance, deploy_id: str) -> None:
    """Never raises."""
    with contextlib.suppress(OSError), _own_folder(make=False) as folder:
        os.unlink(_name(instance, deploy_id), dir_fd=folder)
    with contextlib.suppress(OSError):
        os.rmdir(_own_place())


def sweep(instance: Instance) -> None:
    """Drop own notes on this install of deploys that ended, or never began: their writers died too early."""
    for note in read(instance):
        if note["uid"] == os.geteuid() and not _owes(note):
            drop(Instance(note["port"], instance.root, instance.machine), note["deploy"])


def read_others(instance: Instance) -> list[dict[str, Json]]:
    """Deploys of this install that nobody works on and that are not in this instance's own journals."""
    found = []
    for note in read(instance):
        mine = note["uid"] == os.geteuid()
        if mine and (Path(note["folder"]).parent == instance.deploys or not _owes(note)):
            continue
        owner = lock.read_owner(Instance(note["port"], instance.root, instance.machine))
        if owner is None or owner.get("deploy") not in (None, note["deploy"]):
            found.append(note)
    return found


def read(instance: Instance) -> list[dict[str, Json]]:
    """Every sound note on this install, whatever the port: {user, uid, port, deploy, folder, since}."""
    try:
        names = sorted(os.listdir(BOARD))
    except OSError:
        return []
    found = []
    for name in names:
        uid = name.removeprefix(PREFIX)
        if name.startswith(PREFIX) and uid.isdecimal():
            with contextlib.suppress(OSError), _open_folder(BOARD / name, int(uid)) as folder:
                ending = f"-{_install(instance)}-"
                found += [
                    note
                    for file in sorted(os.listdir(folder))
                    if ending in file and (note := _read_one(folder, file, int(uid)))
                ]
    return found


def _read_one(folder: int, name: str, uid: int) -> dict[str, Json] | None:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        with open(fd, "rb") as file:
            now = os.fstat(fd)
            if not stat.S_ISREG(now.st_mode) or now.st_uid != uid:
                return None
            raw = json.loads(file.read(LARGEST))
        port, deploy, place = int(raw["port"]), str(raw["deploy"]), str(raw["folder"])
        since = float(raw["since"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    fits = DEPLOY_ID.fullmatch(deploy) and PLACE.fullmatch(place) and 0 < port < 65536
    if not fits or raw.get("machine") != state.machine_id():
        return None
    user = state.user_name(uid)
    return {"user": user, "uid": uid, "port": port, "deploy": deploy, "folder": place, "since": since}


def _owes(note: dict[str, Json]) -> bool:
    now = journal.replay_deploy(Path(note["folder"]))
    return now.opened is not None and not now.ended


def _install(instance: Instance) -> str:
    return instance.key.partition("-")[2]


def _name(instance: Instance, deploy_id: str) -> str:
    return f"{instance.key}-{deploy_id}.json"


def _own_place() -> Path:
    return BOARD / f"{PREFIX}{os.geteuid()}"


@contextlib.contextmanager
def _own_folder(*, make: bool) -> Iterator[int]:
    if make:
        with contextlib.suppress(FileExistsError):
            _own_place().mkdir(mode=0o755)
    with _open_folder(_own_place(), os.geteuid()) as fd:
        if make:
            os.fchmod(fd, 0o755)  # whatever the umask was
        yield fd


@contextlib.contextmanager
def _open_folder(path: Path, uid: int) -> Iterator[int]:
    """Raises PermissionError unless it is a folder and no link, this user's, that nobody else can write."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        now = os.fstat(fd)
        if now.st_uid != uid or now.st_mode & 0o022:
            raise PermissionError(f"{path} is not the folder of uid {uid} alone")
        yield fd
    finally:
        os.close(fd)
