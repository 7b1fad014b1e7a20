"""Content-addressed store: backups and staged files, named by the sha256 of their bytes."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

from . import state
from .context import OpFailed


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def digest_file(path: Path | str) -> str | None:
    """sha256 of a file's bytes; None where there is no file. OSError otherwise."""
    seen = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while chunk := file.read(1 << 20):
                seen.update(chunk)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return seen.hexdigest()


class Store:
    """One machine's store. Bytes are verified on the way in and on the way out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, digest: str) -> Path:
        return self.folder / digest

    def has(self, digest: str) -> bool:
        return self.path(digest).exists()

    def put(self, data: bytes, expected: str) -> None:
        """Durable when it returns. Bytes that are there already are checked, and mended if they rotted."""
        found = sha256(data)
        if found != expected:
            raise OpFailed(
                "damaged",
                f"bytes that should be {expected[:12]} are {found[:12]}",
                host_state="nothing was changed",
            )
        target = self.path(expected)
        if digest_file(target) == expected:
            os.utime(target)  # `clean` leaves young files alone: somebody may be about to refer to them
            return
        state.make_private(self.folder)
        state.write_private(target, data)

    def get(self, digest: str) -> bytes:
        """Raises `backup_missing` or `backup_damaged`; never returns other bytes than asked for."""
        path = self.path(digest)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise OpFailed("backup_missing", f"the store has no bytes {digest} ({path})") from None
        if sha256(data) != digest:
            raise OpFailed(
                "backup_damaged", f"the store's copy does not have its own sha256 any more: {path}"
            )
        return data

    def note_backup(self, digest: str, path: str, deploy: str) -> None:
        """Say that these are bytes from before any deploy: `clean` never counts them out."""
        if digest in self.backups():
            return
        line = json.dumps({"sha256": digest, "path": path, "deploy": deploy, "at": time.time()})
        fd = os.open(
            self.folder / "backups.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        try:
            # It starts with the break too: a writer that died may have left half a line.
            os.write(fd, f"\n{line}\n".encode())
            os.fsync(fd)
        finally:
            os.close(fd)

    def backups(self) -> set[str]:
        try:
            lines = (self.folder / "backups.jsonl").read_text().splitlines()
        except OSError:
            return set()
        known = set()
        for line in lines:
            try:
                known.add(str(json.loads(line)["sha256"]))
            except (ValueError, KeyError, TypeError):
                continue
        return known
