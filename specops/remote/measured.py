"""What smoke tests and sweeps of a running server leave on its host: a file each, the newest of them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from . import state
from .state import Instance

Json = Any
MOST = 100
"""Files of a kind; older ones are removed when one is added."""


def path_of(folder: Path, started: float) -> Path:
    return folder / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(started))}-{os.getpid()}.json"


def keep(path: Path, started: float, content: dict[str, Json]) -> None:
    """OSError where the disk does not take it."""
    whole = {"format": 1, "started": started, "closed": time.time(), "boot_id": state.boot_id(), **content}
    state.make_private(path.parent)
    state.write_private(path, json.dumps(whole, ensure_ascii=False).encode())
    for old in sorted(path.parent.glob("*.json"))[:-MOST]:
        old.unlink(missing_ok=True)


def list_sweeps(instance: Instance) -> list[dict[str, Json]]:
    """Newest first, each with its figures in short."""
    return [
        {
            **_head(path, raw),
            "ended": raw.get("ended"),
            "about": raw.get("about") or {},
            "levels": [
                {key: level.get(key) for key in ("arm", "C", "rate", "repeat", "throughput", "taints")}
                for level in raw.get("levels") or ()
            ],
        }
        for path, raw in _read(instance.sweeps)
    ]


def list_smokes(instance: Instance) -> list[dict[str, Json]]:
    """Newest first."""
    keys = ("verdict", "checks", "threshold", "gate", "release")
    return [
        {**_head(path, raw), **{key: raw.get(key) for key in keys}} for path, raw in _read(instance.smokes)
    ]


def _head(path: Path, raw: dict[str, Json]) -> dict[str, Json]:
    times = {key: raw.get(key) for key in ("started", "closed", "boot_id")}
    return {"id": path.stem, "path": str(path), **times}


def _read(folder: Path) -> list[tuple[Path, dict[str, Json]]]:
    found = []
    for path in sorted(folder.glob("*.json"), reverse=True):
        raw = state.read_json(path)
        if isinstance(raw, dict):
            found.append((path, raw))
    return found
