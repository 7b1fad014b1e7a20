"""Makes a patch from two trees: an install's `sglang` folder as it is, and the same folder changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from specops.config.patch import Origin, Patch, id_problem
from specops.errors import UsageError
from specops.steps.diff import PatchChange
from specops.steps.patch_folder import Head, named_by_bytes, write_patch

PASSED_OVER = {"__pycache__", ".git"}
VERSION_FILES = ("_version.py", "version.py")


def patch_from_trees(
    patch: str,
    before: Path,
    after: Path,
    into: Path,
    *,
    title: str,
    release: str | None,
    gate: bool,
    like: Patch | None = None,
) -> Patch:
    """The patch `into/<patch>` that turns the files of `before` into those of `after`.

    One that was merged by hand is `like` the patch that it carries over: it has that one's gate, flags,
    variables and refusals, is called `<patch>-at-<hash of its bytes>`, and is as unproven as a rebased one.

    Raises UsageError for folders that are none or do not differ, ConfigError for what a patch cannot hold.
    """
    problem = id_problem(patch)
    if problem:
        raise UsageError(f"{patch!r}: an id {problem}")
    for tree in (before, after):
        if not (tree / "__init__.py").is_file():
            raise UsageError(f"{tree}: is no sglang folder (it has no __init__.py)")
    changes = list(find_changes(before, after))
    if not changes:
        raise UsageError(f"{before} and {after} do not differ: there is nothing to make a patch of")
    version = release or read_version(before)
    if version is None:
        raise UsageError(f"{before}: says no version", next_command="give --release VERSION")
    title = title or f"{len(changes)} files"
    if like is None:
        head = Head(id=patch, title=title, gate="batch-gate" if gate else None)
    else:
        head = Head(
            id=named_by_bytes(patch, changes),
            title=title,
            gate=like.gate,
            flags=like.flags,
            env=like.env,
            refuses=like.refuses,
            origin=Origin(patch=like.id, release=version),
        )
    modules = [name for change in changes if change.after is not None and (name := module_of(change.path))]
    return write_patch(into, head, version, changes, modules)


def find_changes(before: Path, after: Path) -> Iterator[PatchChange]:
    """Files that differ, by path below the folders, in order."""
    for path in sorted(_files(before) | _files(after)):
        old, new = _read(before / path), _read(after / path)
        if old != new:
            yield PatchChange(path=path, before=old, after=new)


def _files(tree: Path) -> set[str]:
    found = set()
    for path in tree.rglob("*"):
        relative = path.relative_to(tree)
        if path.is_file() and not PASSED_OVER.intersection(relative.parts) and path.suffix != ".pyc":
            found.add(relative.as_posix())
    return found


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def module_of(path: str) -> str | None:
    """`srt/managers/scheduler.py` -> `sglang.srt.managers.scheduler`; None for what is no module."""
    if not re.fullmatch(r"(\w+/)*\w+\.py", path):
        return None
    parts = path.removesuffix(".py").split("/")
    return ".".join(["sglang", *(parts[:-1] if parts[-1] == "__init__" else parts)])


def read_version(tree: Path) -> str | None:
    """From the package's own version file."""
    for name in VERSION_FILES:
        text = _read(tree / name)
        found = re.search(rb"^(?:__)?version(?:__)?\b[^'\"\n]*['\"]([0-9][\w.+]*)['\"]", text or b"", re.M)
        if found:
            return found[1].decode()
    return None
