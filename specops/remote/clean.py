"""Bounds what old deploys leave on the host: logs, evidence, vaults, staged bytes, agents."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import deploy, history, journal, lock, state
from .request import Request
from .state import Instance
from .store import Store

Json = Any
KEEP = 10
YOUNG_S = 3600.0
"""Bytes this young may belong to a request that has not written its plan yet."""


def clean(request: Request) -> Json:
    """params: an instance reference, keep (newest deploys, default 10), dry_run.

    -> {"removed": [deploy id], "store": [sha256], "agents": [name], "bytes": n, "kept": n}. Deploys in
    force and unfinished ones stay, and so do bytes that no deploy wrote, whoever still refers to them.
    """
    instance = state.open_instance(request.params)
    keep = int(request.params.get("keep", KEEP))
    dry_run = bool(request.params.get("dry_run"))
    held = lock.take(instance)
    try:
        deploys = history.read_deploys(instance)
        kept = {past.id for past in deploys[len(deploys) - min(keep, len(deploys)) :]}
        kept |= {past.id for past in history.current_stack(deploys)}
        kept |= {past.id for past in deploys if not past.now.ended}
        gone = [folder for folder in _folders(instance.deploys) if folder.name not in kept]
        size = sum(_size(folder) for folder in gone)
        if not dry_run:
            for folder in gone:
                shutil.rmtree(folder, ignore_errors=True)
        digests, agents = _unreferred(instance, {folder.name for folder in gone})
        size += sum(path.stat().st_size for path in (*digests, *agents))
        if not dry_run:
            for path in (*digests, *agents):
                path.unlink(missing_ok=True)
            for folder in (instance.store, instance.agents):
                deploy.sweep_temps(folder)
    finally:
        held.close()
    return {
        "removed": sorted(folder.name for folder in gone),
        "store": sorted(path.name for path in digests),
        "agents": sorted(path.name for path in agents),
        "bytes": size,
        "kept": len(kept),
        "dry_run": dry_run,
    }


def _unreferred(instance: Instance, gone: set[str]) -> tuple[list[Path], list[Path]]:
    """Old files of the store and of the agents that no deploy of any instance of this machine names."""
    needed = Store(instance.store).backups()
    agents: set[str] = set()
    for folder in _all_deploys(instance.machine):
        if folder.parent == instance.deploys and folder.name in gone:
            continue
        history.refuse_newer(folder)
        needed |= set(_digests(state.read_json(folder / "plan.json")))
        first = journal.replay_deploy(folder).opened or {}
        agents.add(f"{first.get('agent')}.zip")
    stored = [path for path in _files(instance.store) if len(path.name) == 64 and path.name not in needed]
    return [p for p in stored if not _young(p)], [
        p for p in _files(instance.agents) if p.suffix == ".zip" and p.name not in agents and not _young(p)
    ]


def _digests(value: Json) -> Iterator[str]:
    """Every sha256 in a plan, wherever it stands: too many are better than one too few."""
    if isinstance(value, str):
        if len(value) == 64:
            yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _digests(item)
    elif isinstance(value, list):
        for item in value:
            yield from _digests(item)


def _all_deploys(machine: Path) -> Iterator[Path]:
    for instance in _folders(machine / "instances"):
        yield from _folders(instance / "deploys")


def _folders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []


def _young(path: Path) -> bool:
    return time.time() - path.stat().st_mtime < YOUNG_S


def _size(folder: Path) -> int:
    return sum(
        os.lstat(os.path.join(base, name)).st_size for base, _, names in os.walk(folder) for name in names
    )
