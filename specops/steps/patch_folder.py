"""Writes a patch down: patch.yaml, a diff for each changed file, and the files that it adds."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from specops.config.patch import ABSENT, FILE, Origin, Patch, Refusal, load_patch
from specops.errors import ConfigError
from specops.steps.diff import DiffError, PatchChange, make_diff, sha256
from specops.steps.patch import build_changes

if TYPE_CHECKING:
    from specops.config.schema import Flag


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """What patch.yaml says beside the files."""

    id: str
    title: str
    gate: str | None = None
    flags: Mapping[str, Flag] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    refuses: Sequence[Refusal] = ()
    origin: Origin | None = None


def named_by_bytes(stem: str, changes: Iterable[PatchChange]) -> str:
    """An id that holds a hash of the bytes before and after: another install or another patch gets another
    one, so that what a host has proven of one is no proof of the other."""
    whole = hashlib.sha256()
    for change in sorted(changes, key=lambda each: each.path):
        for part in (change.path, change.before_sha256, change.after_sha256):
            whole.update(str(part).encode())
    return f"{stem}-at-{whole.hexdigest()[:12]}"


def write_patch(
    folder: Path, head: Head, release: str, changes: Sequence[PatchChange], modules: Sequence[str]
) -> Patch:
    """The patch as `folder/<id>`, in place of one of that id. Read back, applied to its own bytes and
    compiled before it gets there. Raises ConfigError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{head.id}-", dir=folder) as temp:
        draft = Path(temp) / head.id
        draft.mkdir()
        files = [_write_change(draft, change) for change in changes]
        text = yaml.safe_dump(_describe(head, release, files, modules), sort_keys=False, width=110)
        (draft / FILE).write_text(text, encoding="utf-8")
        build_changes(load_patch(draft), release, {c.path: c.before for c in changes}.get)
        final = folder / head.id
        shutil.rmtree(final, ignore_errors=True)
        draft.rename(final)
    return load_patch(final)


def _write_change(folder: Path, change: PatchChange) -> dict[str, str]:
    name = change.path.replace("/", "-")
    entry = {
        "path": change.path,
        "before": sha256(change.before) or ABSENT,
        "after": sha256(change.after) or ABSENT,
    }
    if change.before is None and change.after is not None:
        (folder / name).write_bytes(change.after)
        return {**entry, "added": name}
    try:
        diff = make_diff(change.before, change.after, change.path)
    except DiffError as error:
        raise ConfigError(f"{error.message}, and a patch can add such a file but not change it") from None
    (folder / f"{name}.diff").write_bytes(diff.encode())
    return {**entry, "diff": f"{name}.diff"}


def _describe(head: Head, release: str, files: Sequence[Any], modules: Sequence[str]) -> dict[str, Any]:
    refuses = [
        {
            key: value
            for key, value in {"flag": r.flag, "value": _plain(r.value), "why": r.why}.items()
            if value is not None
        }
        for r in head.refuses
    ]
    told: dict[str, Any] = {
        "id": head.id,
        "title": head.title,
        "origin": {"patch": head.origin.patch, "release": head.origin.release} if head.origin else None,
        "provides": {"gate": head.gate} if head.gate else None,
        "flags": {name: _plain(value) for name, value in head.flags.items()},
        "env": dict(head.env),
        "refuses": refuses,
        "releases": {release: {"files": list(files), "modules": list(modules)}},
    }
    return {key: value for key, value in told.items() if value}


def _plain(value: Flag | None) -> Any:
    return list(value) if isinstance(value, tuple) else value
