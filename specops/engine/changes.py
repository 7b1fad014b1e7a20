"""Which files of the host a plan changes: from patches, from the gate, and what an earlier deploy left."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from specops.config.patch import FileChange as PatchFile
from specops.config.patch import Patch, for_release
from specops.engine.plan import FileDiff
from specops.errors import Refused
from specops.steps.diff import make_diff
from specops.steps.files import FileChange, digest
from specops.steps.patch import build_change

if TYPE_CHECKING:
    from specops.connect.base import Connector
    from specops.engine.place import Place
    from specops.facts.install import Install
    from specops.facts.state import Current

Json = object


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    files: tuple[FileChange, ...]
    diffs: tuple[FileDiff, ...]
    modules: tuple[str, ...]
    """Changed modules by name, for the rehearsal."""
    copied: tuple[FileChange, ...] = ()
    """Of `activation: copy`: made in a copy of the package, not in the install."""

    @property
    def all(self) -> tuple[FileChange, ...]:
        return (*self.files, *self.copied)


@dataclass(frozen=True, kw_only=True, slots=True)
class Base:
    """What a patch starts from on this host."""

    patch: Patch
    file: PatchFile
    found: str | None
    """sha256 on the host now."""
    stored: bool
    """The release's own bytes are in the host's store, because a deploy in force replaced them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reader:
    """Reads files of one install and of the host's store, one request for all of them."""

    connector: Connector
    place: Place
    held: Mapping[str, bytes] = field(default_factory=dict)
    """sha256 -> bytes that came with the facts."""

    def contents(self, relpaths: Sequence[str], digests: Sequence[str]) -> dict[str, bytes]:
        """By path below the `sglang` folder, and by sha256 for what is in the store."""
        if not relpaths and not digests:
            return {}
        params = {"instance": self.place.reference(), "files": list(relpaths), "stored": list(digests)}
        answer = self.connector.call("read_file", params, deadline_s=60)
        if not isinstance(answer, dict):
            raise TypeError(f"read_file: not an object: {answer!r}")
        items = {**answer.get("files", {}), **answer.get("stored", {})}
        return {key: base64.b64decode(item["base64"]) for key, item in items.items() if item}


def patch_changes(
    patches: Sequence[Patch], install: Install, current: Current | None, reader: Reader, host: str
) -> Changes:
    """The changes that bring the install from what it is to just these patches, other files untouched.

    A file that the deploy in force changed and that none of the patches wants goes back to what it was.
    Raises Refused for a release that a patch does not know, for a drifted file (with its diff), and where
    two patches want the same file.
    """
    wanted = _wanted(patches, install, host)
    bases = [_base(patch, file, install, current, reader, host) for patch, file in wanted]
    todo = [base for base in bases if base.found != base.file.after_sha256]
    asked = [base for base in todo if base.found is not None and base.file.before not in reader.held]
    texts = reader.contents(
        [b.file.path for b in asked if not b.stored], [b.file.before for b in asked if b.stored]
    )
    files, diffs = [], []
    for base in todo:
        read = texts.get(base.file.before if base.stored else base.file.path)
        before = reader.held.get(base.file.before, read)
        built = build_change(base.patch, base.file, before)
        files.append(
            FileChange(
                path=f"{install.root}/{base.file.path}",
                before=base.found,
                after=base.file.after_sha256,
                content=built.after,
            )
        )
        diffs.append(FileDiff(path=base.file.path, diff=make_diff(before, built.after, base.file.path)))
    back = list(_taken_back(current, install, {file.path for _, file in wanted}))
    diffs += [FileDiff(path=c.path, diff="back to the bytes before the deploy in force") for c in back]
    names = [name for patch in patches for name in for_release(patch, install.version).modules]
    return Changes(files=(*files, *back), diffs=tuple(diffs), modules=tuple(names))


def in_copy(changes: Changes, root: str) -> Changes:
    """The same, with what is below the install's folder made in a copy of it."""
    inside = [change for change in changes.files if change.path.startswith(root + "/")]
    rest = tuple(change for change in changes.files if change not in inside)
    return replace(changes, files=rest, copied=tuple(inside))


def _wanted(patches: Sequence[Patch], install: Install, host: str) -> list[tuple[Patch, PatchFile]]:
    wanted: dict[str, tuple[Patch, PatchFile]] = {}
    for patch in patches:
        for file in for_release(patch, install.version).files:
            if file.path in wanted:
                raise Refused(
                    f"{host}: patches {wanted[file.path][0].id} and {patch.id} both change {file.path}",
                    host_state="nothing was changed",
                    next_command="leave one of them out of `patches:`",
                )
            wanted[file.path] = (patch, file)
    return list(wanted.values())


def _base(
    patch: Patch, file: PatchFile, install: Install, current: Current | None, reader: Reader, host: str
) -> Base:
    """Raises Refused, with the diff where the pristine bytes are known, for a file with other bytes."""
    found = install.files.get(file.path)
    if found in (file.before_sha256, file.after_sha256):
        return Base(patch=patch, file=file, found=found, stored=False)
    made = {f.path: f for f in current.installed} if current else {}
    ours = made.get(f"{install.root}/{file.path}")
    if ours and ours.after == found and ours.before == file.before_sha256:
        return Base(patch=patch, file=file, found=found, stored=True)
    made_from = patch.origin.patch if patch.origin else patch.id
    raise Refused(
        f"{host}: {file.path} has drifted: patch {patch.id} starts from {_short(file.before_sha256)}, "
        f"the host has {_short(found)}\n{_drift(file, found, reader)}",
        host_state=f"nothing was changed; the file is in {install.root}",
        next_command=f"specops patch rebase {made_from} --host {host}, "
        f"or reinstall SGLang {install.version} there",
    )


def _drift(file: PatchFile, found: str | None, reader: Reader) -> str:
    texts: Mapping[str, bytes] = {}
    if found is not None and file.before_sha256 is not None:
        texts = reader.contents([file.path], [file.before_sha256])
    pristine = texts.get(file.before)
    if pristine is None:
        return "(the release's own bytes are not in the host's store, so there is no diff to show)"
    return make_diff(pristine, texts.get(file.path), file.path)


def _taken_back(current: Current | None, install: Install, keep: set[str]) -> Iterable[FileChange]:
    for file in current.installed if current else ():
        relative = file.path.removeprefix(install.root + "/")
        if relative == file.path or relative in keep or install.files.get(relative) != file.after:
            continue
        yield FileChange(path=file.path, before=file.after, after=file.before, content=None)


def _short(sha256: str | None) -> str:
    return f"sha256 {sha256[:12]}…" if sha256 else "no such file"


def added_file(path: str, found: str | None, content: bytes) -> tuple[FileChange, FileDiff]:
    """A whole file outside the install, such as the gate's."""
    change = FileChange(path=path, before=found, after=digest(content), content=content)
    return change, FileDiff(path=path, diff=make_diff(None, content, path.lstrip("/")))
