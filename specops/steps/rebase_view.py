"""A rebased patch for people: each hunk three ways, as the release, the install and the patch have it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from specops.steps.diff import Hunk, split_lines

if TYPE_CHECKING:
    from specops.steps.rebase import Conflict, Placed


def show_placed(placed: Placed, grown: int = 0) -> str:
    """Three ways at once, as a combined diff: the first column is against the release, the second against
    the install. `@@@ -release -install +patched @@@`; both have the hunk's old lines. `grown` is how many
    lines the hunks before it have added to the file."""
    hunk = placed.hunk
    size, now = len(hunk.old_lines), len(hunk.new_lines)
    head = f"@@@ -{hunk.old_start},{size} -{placed.line},{size} +{placed.line + grown},{now} @@@"
    return "\n".join([head, *_columns(hunk.old_lines, hunk.new_lines)]) + "\n"


def show_conflict(conflict: Conflict, before: bytes | None) -> str:
    """The hunk as the release has it, and where nothing fits, the place in the install most like it (`before`
    is the install's file), between markers."""
    head = f"{conflict.path}: {conflict.why}\n"
    if conflict.hunk is None:
        return head
    hunk = conflict.hunk
    lines = [f"@@ -{hunk.old_start},{len(hunk.old_lines)} @@ hunk {hunk.number} of the diff"]
    lines += _columns(hunk.old_lines, hunk.new_lines)
    if not conflict.places:
        there = split_lines(before or b"")
        at = _most_alike(there, hunk)
        lines += [f"<<<<<<< the install, from line {at + 1}"]
        lines += [_text(line) for line in there[at : at + len(hunk.old_lines)]]
        lines += ["||||||| the release", *(_text(line) for line in hunk.old_lines)]
        lines += ["=======", *(_text(line) for line in hunk.new_lines), ">>>>>>> the patch"]
    return head + "\n".join(lines) + "\n"


def _columns(old: Sequence[bytes], new: Sequence[bytes]) -> Iterator[str]:
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        mark = "  " if kind == "equal" else "--"
        yield from (mark + _text(line) for line in old[a:b])
        if kind != "equal":
            yield from ("++" + _text(line) for line in new[c:d])


def _text(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\r\n")


def _most_alike(lines: Sequence[bytes], hunk: Hunk) -> int:
    """Where most lines of the hunk stand in their order; ties go to what is nearest to the old place."""
    wanted, old = hunk.old_lines, hunk.old_start - 1
    known = set(wanted)
    best, best_at = (-1, 0), 0
    for at in range(max(len(lines) - len(wanted) + 1, 1)):
        if lines[at : at + 1] and not known.intersection(lines[at : at + len(wanted)]):
            continue
        same = sum(a == b for a, b in zip(lines[at : at + len(wanted)], wanted, strict=False))
        if (score := (same, -abs(at - old))) > best:
            best, best_at = score, at
    return best_at
