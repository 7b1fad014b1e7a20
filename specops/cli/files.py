"""A deploy's evidence on this machine: a tar that a host sent, listed or kept."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any

from specops.errors import SpecopsError, UsageError

Json = Any


def list_bundle(data: bytes) -> list[dict[str, Json]]:
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as bundle:
            files = [member for member in bundle.getmembers() if member.isfile()]
    except (tarfile.TarError, OSError, EOFError) as error:
        raise SpecopsError(f"the host's evidence is no tar: {error}") from error
    return [{"name": file.name, "size": file.size} for file in files]


def keep_bundle(data: bytes, path: Path) -> None:
    """Written 0600: a log may hold users' prompts. It is not unpacked: its names come from elsewhere."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
    except OSError as error:
        raise UsageError(f"--into: cannot write {path}: {error.strerror}") from error
