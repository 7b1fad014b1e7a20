"""Patch: changes to an install, as data, pinned by sha256 to the releases that they were made for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

from specops.config.schema import Flag, Text, read_node, setting
from specops.config.shipped import local_patches, shipped
from specops.config.source import Source, child, complain, nearest, read_source
from specops.errors import ConfigError, Refused

if TYPE_CHECKING:
    from yaml.nodes import Node

ABSENT = "absent"
FILE = "patch.yaml"
PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
FILLED_IN = ("threshold", "hysteresis_steps")
"""Of the playbook's gate, in the flags and variables of a patch."""


def digest_problem(text: str) -> str | None:
    if text == ABSENT or re.fullmatch(r"[0-9a-f]{64}", text):
        return None
    return f"must be a sha256 in 64 lower-case hex digits, or '{ABSENT}', not {text!r}"


def inside_problem(text: str) -> str | None:
    path = PurePosixPath(text)
    if not text or path.is_absolute() or ".." in path.parts or str(path) != text:
        return f"must be a plain path below the folder, not {text!r}"
    return None


def id_problem(text: str) -> str | None:
    return None if re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", text) else "must be lower-case words joined by '-'"


def placeholder_problem(values: Mapping[str, Flag]) -> str | None:
    for name, value in values.items():
        for word in PLACEHOLDER.findall(value) if isinstance(value, str) else ():
            if word not in FILLED_IN:
                known = " and ".join(f"{{{each}}}" for each in FILLED_IN)
                return f"{name}: nothing fills in {{{word}}}; there are {known}"
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class FileChange:
    """One file of the install. `before` and `after` are sha256, or `absent`."""

    path: str = setting("below the install's sglang folder", check=inside_problem)
    before: str = setting("sha256 of the release's own bytes, or absent", check=digest_problem)
    after: str = setting("sha256 of the patched bytes, or absent", check=digest_problem)
    diff: str | None = setting("unified diff, below the patch's folder", default=None, check=inside_problem)
    added: str | None = setting("the whole new file", default=None, check=inside_problem)

    @property
    def before_sha256(self) -> str | None:
        return None if self.before == ABSENT else self.before

    @property
    def after_sha256(self) -> str | None:
        return None if self.after == ABSENT else self.after


@dataclass(frozen=True, kw_only=True, slots=True)
class PatchRelease:
    """What the patch is for one SGLang release."""

    files: tuple[FileChange, ...] = setting("in any order; each path once")
    modules: tuple[str, ...] = setting("modules that the rehearsal imports, lazily loaded ones too")


@dataclass(frozen=True, kw_only=True, slots=True)
class Provides:
    gate: Literal["batch-gate"] | None = setting("the kind of gate that it brings", default=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """A launch that the patch does not work with; `value` None: whatever the flag's value."""

    flag: str = setting("without dashes")
    value: Flag | None = setting("None: any", default=None)
    why: str = setting("for people")


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Of a patch that was carried over to bytes that no release has."""

    patch: str = setting("id of the patch whose hunks these are", check=id_problem)
    release: str = setting("the SGLang release that they were made for")


@dataclass(frozen=True, kw_only=True, slots=True)
class PatchFile:
    """patch.yaml as it is written."""

    id: str = setting("its folder's name", check=id_problem)
    title: str = setting("one line")
    provides: Provides = setting("what a playbook can ask for", default=Provides())
    origin: Origin | None = setting("of a rebased patch: it is unproven", default=None)
    releases: Mapping[str, PatchRelease] = setting("by SGLang release")
    flags: Mapping[str, Flag] = setting(
        "launch flags; {threshold} and {hysteresis_steps} are filled in",
        default={},
        check=placeholder_problem,
    )
    env: Mapping[str, Text] = setting(
        "variables of the server, filled in alike", default={}, check=placeholder_problem
    )
    refuses: tuple[Refusal, ...] = setting("launches that it does not work with", default=())


@dataclass(frozen=True, kw_only=True, slots=True)
class Patch:
    id: str
    title: str
    gate: str | None
    """The kind of gate that it brings, or None."""
    releases: Mapping[str, PatchRelease]
    flags: Mapping[str, Flag]
    env: Mapping[str, str]
    refuses: tuple[Refusal, ...]
    folder: Path
    """Where patch.yaml, the diffs and the added files are."""
    origin: Origin | None = None
    """None unless it was rebased; such a patch is unproven until a host has proven it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileState:
    """What one file of an install is, by its hash."""

    path: str
    state: Literal["pristine", "applied", "drifted", "other-patch"]
    patch: str | None = None
    """Whose bytes they are, where it is not this patch or the release."""
    sha256: str | None = None


def load_patches(*folders: Path) -> dict[str, Patch]:
    """Every patch of the folders, by id; the shipped ones where no folder is given. Raises ConfigError."""
    patches: dict[str, Patch] = {}
    for folder in folders or (shipped("patches"),):
        for path in sorted(folder.glob(f"*/{FILE}")):
            patch = load_patch(path.parent)
            if patch.id in patches:
                raise ConfigError(f"{path}:1: patch {patch.id!r} is already in {patches[patch.id].folder}")
            patches[patch.id] = patch
    return patches


def known_patches(folders: Iterable[str] | None) -> dict[str, Patch]:
    """The shipped patches, those that rebase and new have stored, and those of more folders."""
    return load_patches(
        shipped("patches"), local_patches(), *(Path(folder).expanduser() for folder in folders or ())
    )


def load_patch(folder: Path) -> Patch:
    source = read_source(folder / FILE, what="patch")
    raw = read_node(source.root, PatchFile)
    if raw.id != folder.resolve().name:
        raise complain(
            child(source.root, "id"),
            f"id: {raw.id!r} is not the name of its folder, {folder.resolve().name!r}",
        )
    for release, content in raw.releases.items():
        check_release(source, release, content)
    return Patch(
        id=raw.id,
        title=raw.title,
        gate=raw.provides.gate,
        releases=raw.releases,
        flags=raw.flags,
        env=raw.env,
        refuses=raw.refuses,
        folder=folder,
        origin=raw.origin,
    )


def check_release(source: Source, release: str, content: PatchRelease) -> None:
    seen: set[str] = set()
    if not content.files:
        raise complain(
            child(source.root, "releases", release, "files"), f"releases.{release}: changes no file"
        )
    for index, change in enumerate(content.files):
        spot = child(source.root, "releases", release, "files", str(index))
        place = f"releases.{release}.files[{index}]"
        if change.path in seen:
            raise complain(child(spot, "path"), f"{place}: {change.path} is already changed above")
        seen.add(change.path)
        check_change(spot, place, change, source.path.parent)


def check_change(spot: Node, place: str, change: FileChange, folder: Path) -> None:
    if (change.diff is None) == (change.added is None):
        raise complain(spot, f"{place}: give either diff (a change) or added (a whole new file)")
    if change.added is not None and change.before != ABSENT:
        raise complain(child(spot, "before"), f"{place}: an added file is '{ABSENT}' before")
    if change.before == change.after:
        raise complain(child(spot, "after"), f"{place}: before and after are the same")
    name = change.diff or change.added or ""
    if not (folder / name).is_file():
        key = "diff" if change.diff else "added"
        raise complain(child(spot, key), f"{place}.{key}: no such file: {folder / name}")


def find_patch(patches: Mapping[str, Patch], patch_id: str) -> Patch:
    """Raises ConfigError with the nearest id."""
    if patch_id in patches:
        return patches[patch_id]
    raise ConfigError(
        f"no patch is called {patch_id!r}{nearest(patch_id, patches)}", next_command="specops patch list"
    )


def for_release(patch: Patch, release: str) -> PatchRelease:
    """The patch for one release. Raises Refused with the releases that it was made for."""
    if release in patch.releases:
        return patch.releases[release]
    made_for = ", ".join(patch.releases)
    raise Refused(
        f"patch {patch.id} was not made for SGLang {release}; it was made for {made_for}",
        host_state="nothing was changed",
        next_command=f"specops patch show {patch.id}",
    )


def gate_patches(patches: Mapping[str, Patch], release: str) -> list[str]:
    """Ids of the patches that bring a gate to this release."""
    return [patch.id for patch in patches.values() if patch.gate and release in patch.releases]


def state_of(
    patch: Patch, release: str, hashes: Mapping[str, str | None], known: Iterable[Patch]
) -> list[FileState]:
    """What each file of the patch is on an install; `hashes` by path, None or missing: no such file.

    Drifted is what neither the release, nor this patch, nor any other known one has.
    """
    states: list[FileState] = []
    others = [(other, other.releases[release]) for other in known if release in other.releases]
    for change in for_release(patch, release).files:
        found = hashes.get(change.path)
        owner = owner_of(change.path, found, others)
        if found == change.before_sha256:
            states.append(FileState(path=change.path, state="pristine", sha256=found))
        elif found == change.after_sha256:
            states.append(FileState(path=change.path, state="applied", patch=patch.id, sha256=found))
        elif owner is not None:
            states.append(FileState(path=change.path, state="other-patch", patch=owner, sha256=found))
        else:
            states.append(FileState(path=change.path, state="drifted", sha256=found))
    return states


def owner_of(path: str, found: str | None, others: Iterable[tuple[Patch, PatchRelease]]) -> str | None:
    for other, content in others:
        for change in content.files:
            if change.path == path and change.after_sha256 == found:
                return other.id
    return None
