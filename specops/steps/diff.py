"""Unified diffs, applied strictly: every line where its hunk says, byte for byte; no fuzz, no offset."""

from __future__ import annotations

import difflib
import hashlib
import re
from dataclasses import dataclass

from specops.errors import ConfigError

HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(?: .*)?\r?\n?", re.DOTALL)
NO_NEWLINE = b"\\ No newline at end of file"
NO_FILE = "/dev/null"


class DiffError(ConfigError):
    """A diff that is malformed or does not fit the bytes; the message names path, hunk and line."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = line
        """Of the diff, counted from 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PatchChange:
    """One file of an install: its bytes before and after; None where there is no file."""

    path: str
    before: bytes | None
    after: bytes | None

    @property
    def before_sha256(self) -> str | None:
        return sha256(self.before)

    @property
    def after_sha256(self) -> str | None:
        return sha256(self.after)


@dataclass(frozen=True, kw_only=True, slots=True)
class Hunk:
    number: int
    line: int
    """Where its header stands in the diff, counted from 1."""
    old_start: int
    old_lines: tuple[bytes, ...]
    new_start: int
    new_lines: tuple[bytes, ...]


def sha256(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


def split_lines(data: bytes) -> list[bytes]:
    """Lines with their own endings; only a line feed ends a line, so CRLF and lone CR stay in it."""
    lines = data.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def apply_diff(before: bytes | None, diff: bytes | str, path: str) -> bytes | None:
    """The bytes of `path` after the diff; None in and out is an absent file.

    `path` is what errors call the file. Raises DiffError, naming the hunk and the first line that differs.
    """
    removed, added, hunks = parse_diff(diff.encode() if isinstance(diff, str) else diff, path)
    if removed and added:
        raise DiffError(f"{path}: the diff is from nothing to nothing")
    if added and before is not None:
        raise DiffError(f"{path}: the diff adds this file, but it exists")
    if not added and before is None:
        raise DiffError(f"{path}: the diff changes this file, but it does not exist")
    old = split_lines(before or b"")
    new: list[bytes] = []
    position = 0
    for hunk in hunks:
        position = apply_hunk(old, new, position, hunk, path)
    new.extend(old[position:])
    if removed:
        if new:
            raise DiffError(f"{path}: the diff removes this file, but the file has {len(new)} lines more")
        return None
    return b"".join(new)


def apply_hunk(old: list[bytes], new: list[bytes], position: int, hunk: Hunk, path: str) -> int:
    """Copy up to the hunk, check its old lines, put its new ones; the position in `old` after it."""
    start = hunk.old_start - 1 if hunk.old_lines else hunk.old_start
    name = f"{path}: hunk {hunk.number} (line {hunk.line} of the diff)"
    if start < position:
        raise DiffError(f"{name} begins at line {hunk.old_start}, before the end of the one above", hunk.line)
    if start > len(old):
        raise DiffError(f"{name} begins at line {hunk.old_start}, the file has {len(old)}", hunk.line)
    new.extend(old[position:start])
    expected = hunk.new_start - 1 if hunk.new_lines else hunk.new_start
    if len(new) != expected:
        raise DiffError(
            f"{name} says +{hunk.new_start}, the hunks above it lead to +{len(new) + bool(hunk.new_lines)}",
            hunk.line,
        )
    for offset, wanted in enumerate(hunk.old_lines):
        number = start + offset
        found = old[number] if number < len(old) else None
        if found != wanted:
            raise DiffError(
                f"{name} does not fit at line {number + 1}: {difference(wanted, found)}", hunk.line
            )
    new.extend(hunk.new_lines)
    end = start + len(hunk.old_lines)
    if hunk.new_lines and not hunk.new_lines[-1].endswith(b"\n") and end < len(old):
        raise DiffError(f"{name} ends without a newline, but the file goes on after it", hunk.line)
    return end


def difference(wanted: bytes, found: bytes | None) -> str:
    if found is None:
        return f"expected {wanted!r}, the file ends before it"
    if found.rstrip(b"\r\n") == wanted.rstrip(b"\r\n"):
        return f"the line ends in {ending(found)}, expected {ending(wanted)}"
    return f"expected {wanted!r}, found {found!r}"


def ending(line: bytes) -> str:
    tail = line[len(line.rstrip(b"\r\n")) :]
    return {b"\n": "LF", b"\r\n": "CRLF", b"": "no newline"}.get(tail, repr(tail))


def parse_diff(diff: bytes, path: str) -> tuple[bool, bool, list[Hunk]]:
    """(removes the file, adds the file, hunks) of a diff that is about one file.

    Lines before `---` (git's header) are passed over. Raises DiffError with the line of the diff.
    """
    lines = split_lines(diff)
    head = next((index for index, line in enumerate(lines) if line.startswith(b"--- ")), None)
    if head is None or head + 1 >= len(lines) or not lines[head + 1].startswith(b"+++ "):
        raise DiffError(f"{path}: line 1 of the diff: no '---' and '+++' lines")
    removed = header_path(lines[head + 1]) == NO_FILE
    added = header_path(lines[head]) == NO_FILE
    hunks: list[Hunk] = []
    position = head + 2
    while position < len(lines):
        hunk, position = parse_hunk(lines, position, len(hunks) + 1, path)
        hunks.append(hunk)
    if not hunks:
        raise DiffError(f"{path}: line {head + 2} of the diff: there are no hunks")
    return removed, added, hunks


def header_path(line: bytes) -> str:
    """The path of a `---` or `+++` line, without the date that may follow a tab."""
    return line[4:].split(b"\t")[0].strip().decode(errors="replace")


def parse_hunk(lines: list[bytes], start: int, number: int, path: str) -> tuple[Hunk, int]:
    match = HUNK.fullmatch(lines[start])
    if match is None:
        raise DiffError(
            f"{path}: line {start + 1} of the diff: expected '@@ -a,b +c,d @@', found {lines[start]!r}",
            start + 1,
        )
    counts = [1 if match[group] is None else int(match[group]) for group in (2, 4)]
    sides: tuple[list[bytes], list[bytes]] = ([], [])
    position = start + 1
    while len(sides[0]) < counts[0] or len(sides[1]) < counts[1]:
        if position >= len(lines):
            raise DiffError(f"{path}: hunk {number} (line {start + 1} of the diff) is cut off", start + 1)
        take_line(lines[position], sides, f"{path}: hunk {number}, line {position + 1} of the diff")
        position += 1
        if position < len(lines) and lines[position].startswith(NO_NEWLINE):
            drop_newline(lines[position - 1][:1], sides)
            position += 1
    if len(sides[0]) != counts[0] or len(sides[1]) != counts[1]:
        raise DiffError(
            f"{path}: hunk {number} (line {start + 1} of the diff) has other lines than it counts", start + 1
        )
    hunk = Hunk(
        number=number,
        line=start + 1,
        old_start=int(match[1]),
        old_lines=tuple(sides[0]),
        new_start=int(match[3]),
        new_lines=tuple(sides[1]),
    )
    return hunk, position


def take_line(line: bytes, sides: tuple[list[bytes], list[bytes]], place: str) -> None:
    mark, text = line[:1], line[1:]
    if mark not in (b" ", b"-", b"+"):
        raise DiffError(f"{place}: a line begins with ' ', '-' or '+', this is {line!r}")
    if mark != b"+":
        sides[0].append(text)
    if mark != b"-":
        sides[1].append(text)


def drop_newline(mark: bytes, sides: tuple[list[bytes], list[bytes]]) -> None:
    """The line just read has no newline in the file, only in the diff."""
    for side, absent in zip(sides, (b"+", b"-"), strict=True):
        if mark != absent:
            side[-1] = side[-1].removesuffix(b"\n")


def make_diff(before: bytes | None, after: bytes | None, path: str, *, context: int = 3) -> str:
    """A unified diff that `apply_diff` takes; empty where nothing differs. For showing, and for new patches.

    Raises DiffError where either side is not UTF-8.
    """
    try:
        old = [line.decode() for line in split_lines(before or b"")]
        new = [line.decode() for line in split_lines(after or b"")]
    except UnicodeDecodeError:
        raise DiffError(f"{path}: is not text") from None
    names = (NO_FILE if before is None else f"a/{path}", NO_FILE if after is None else f"b/{path}")
    lines: list[str] = []
    for line in difflib.unified_diff(old, new, *names, n=context):
        lines.append(line if line.endswith("\n") else f"{line}\n{NO_NEWLINE.decode()}\n")
    return "".join(lines)
