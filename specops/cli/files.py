"""A deploy's evidence on this machine: the tar that a host sent, kept as it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specops.errors import SpecopsError, UsageError

if TYPE_CHECKING:
    from specops.cli.reach import Reach

Json = Any


def keep_bundle(data: bytes, path: Path) -> None:
    """Written 0600: a log may hold users' prompts. It is not unpacked: its names come from elsewhere."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
    except OSError as error:
        raise UsageError(f"--into: cannot write {path}: {error.strerror}") from error


def fetch_evidence(at: Reach, deploy: str) -> None:
    """After a deploy that failed: its evidence comes here by itself. Never the reason of another failure."""
    from specops.engine.read import evidence
    from specops.ui.keep import evidence_path

    try:
        found, data = evidence(at.place, at.connector, deploy)
        path = evidence_path(at.place.host, found)
        keep_bundle(data, path)
    except SpecopsError as error:
        at.output.note(f"its evidence stays on the host: {error.message}")
        return
    at.output.note(f"its evidence is kept in {path}")
