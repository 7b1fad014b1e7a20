"""Carries a patch over to bytes that it was not made for: hunks where their lines stand, in just one way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specops.steps.diff import Hunk, PatchChange, parse_diff, sha256, split_lines

if TYPE_CHECKING:
    from specops.config.patch import FileChange, Patch

PLACES_SHOWN = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """One hunk in its new place. Lines are counted from 1."""

    path: str
    hunk: Hunk
    line: int
    """Of the install's file, where the hunk's first old line stands."""

    @property
    def moved(self) -> int:
        return self.line - self.hunk.old_start


@dataclass(frozen=True, kw_only=True, slots=True)
class Conflict:
    """One hunk that has no place, or more than one."""

    path: str
    hunk: Hunk | None
    """None where the whole file is the trouble."""
    why: str
    places: tuple[int, ...] = ()
    """Lines of the install's file where it would fit, from 1, if there are several."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rebased:
    """How one release's patch fits an install."""

    release: str
    changes: tuple[PatchChange, ...]
    placed: tuple[Placed, ...]
    conflicts: tuple[Conflict, ...]
    untouched: int
    """Files that have the release's own bytes."""


def rebase(patch: Patch, release: str, files: Mapping[str, bytes | None]) -> Rebased:
    """Try one release of the patch on `files` (by path below the install; None or missing: no such file)."""
    changes: list[PatchChange] = []
    placed: list[Placed] = []
    conflicts: list[Conflict] = []
    untouched = 0
    for change in patch.releases[release].files:
        before = files.get(change.path)
        untouched += sha256(before) == change.before_sha256
        fitted = _fit(patch, change, before)
        if isinstance(fitted, Conflict):
            conflicts.append(fitted)
            continue
        after, hunks, wrong = fitted
        placed += hunks
        conflicts += wrong
        changes.append(PatchChange(path=change.path, before=before, after=after))
    return Rebased(
        release=release,
        changes=tuple(changes),
        placed=tuple(placed),
        conflicts=tuple(conflicts),
        untouched=untouched,
    )


def nearest(patch: Patch, version: str, files: Mapping[str, bytes | None]) -> Rebased:
    """The release that fits best: fewest conflicts, then most files untouched, then nearest in number."""
    wanted = _numbers(version)

    def distance(tried: Rebased) -> tuple[int, int, list[int]]:
        apart = [abs(a - b) for a, b in zip(_numbers(tried.release), wanted, strict=True)]
        return len(tried.conflicts), -tried.untouched, apart

    seen: dict[tuple[FileChange, ...], str] = {}
    for release in sorted(patch.releases, key=lambda each: each != version):
        seen.setdefault(patch.releases[release].files, release)
    return min((rebase(patch, release, files) for release in seen.values()), key=distance)


def _numbers(version: str) -> list[int]:
    digits = "".join(c if c.isdigit() else " " for c in version.split("+")[0]).split()
    return [int(word) for word in (*digits, "0", "0", "0", "0")[:4]]


def _fit(
    patch: Patch, change: FileChange, before: bytes | None
) -> Conflict | tuple[bytes | None, list[Placed], list[Conflict]]:
    if change.added is not None:
        content = (patch.folder / change.added).read_bytes()
        if before not in (None, content):
            return Conflict(path=change.path, hunk=None, why="the patch adds this file, but it exists")
        return content, [], []
    if before is None:
        return Conflict(path=change.path, hunk=None, why="the patch changes this file, but it does not exist")
    removes, adds, hunks = parse_diff((patch.folder / str(change.diff)).read_bytes(), change.path)
    if removes or adds:
        if sha256(before) == change.before_sha256:
            return None, [], []
        return Conflict(path=change.path, hunk=None, why="the patch removes it, but it has other bytes")
    return place_hunks(change.path, before, hunks)


def place_hunks(
    path: str, before: bytes, hunks: Sequence[Hunk]
) -> tuple[bytes | None, list[Placed], list[Conflict]]:
    """Each hunk where all of its old lines stand, in the hunks' order; only if there is one way to do so.

    No fuzz: not a byte of the context may differ, and a hunk that could go to two places goes to none.
    """
    lines = split_lines(before)
    spots = [_occurrences(lines, hunk.old_lines) for hunk in hunks]
    earliest, latest = _bounds(hunks, spots)
    placed: list[Placed] = []
    conflicts: list[Conflict] = []
    for hunk, found, low, high in zip(hunks, spots, earliest, latest, strict=True):
        possible = [spot for spot in found if low <= spot <= high]
        if len(possible) == 1:
            placed.append(Placed(path=path, hunk=hunk, line=possible[0] + 1))
        else:
            conflicts.append(_conflict(path, hunk, possible))
    if conflicts:
        return before, placed, conflicts
    return b"".join(_rewrite(lines, placed)), placed, []


def _occurrences(lines: Sequence[bytes], wanted: Sequence[bytes]) -> list[int]:
    if not wanted:
        return []
    size = len(wanted)
    first = wanted[0]
    return [
        at
        for at in range(len(lines) - size + 1)
        if lines[at] == first and tuple(lines[at : at + size]) == tuple(wanted)
    ]


def _bounds(hunks: Sequence[Hunk], spots: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """For each hunk the first and the last line at which it leaves room for those before and after it."""
    earliest, at = [], 0
    for hunk, found in zip(hunks, spots, strict=True):
        earliest.append(at)
        at = min((spot for spot in found if spot >= at), default=at - len(hunk.old_lines)) + len(
            hunk.old_lines
        )
    latest: list[int] = []
    end = 1 << 60
    for hunk, found in zip(reversed(hunks), reversed(spots), strict=True):
        limit = end - len(hunk.old_lines)
        latest.append(limit)
        end = max((spot for spot in found if spot <= limit), default=end)
    return earliest, latest[::-1]


def _conflict(path: str, hunk: Hunk, possible: Sequence[int]) -> Conflict:
    if not possible:
        return Conflict(path=path, hunk=hunk, why="its lines stand nowhere in the install's file, in order")
    places = tuple(spot + 1 for spot in possible)
    shown = ", ".join(map(str, places[:PLACES_SHOWN]))
    why = f"it fits in {len(places)} places (lines {shown}), and there must be one"
    return Conflict(path=path, hunk=hunk, why=why, places=places)


def _rewrite(lines: Sequence[bytes], placed: Sequence[Placed]) -> list[bytes]:
    new: list[bytes] = []
    at = 0
    for each in placed:
        new += [*lines[at : each.line - 1], *each.hunk.new_lines]
        at = each.line - 1 + len(each.hunk.old_lines)
    return [*new, *lines[at:]]
