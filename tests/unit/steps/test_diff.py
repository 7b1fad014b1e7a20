"""The strict diff engine: round trips of random edits, the same bytes as git, and nothing else accepted."""

from __future__ import annotations

import argparse
import random
import subprocess
import threading
from pathlib import Path

import pytest

from specops.steps.diff import DiffError, apply_diff, make_diff, split_lines

REAL = [Path(str(module.__file__)) for module in (argparse, threading)]
ENDINGS = [b"\n", b"\r\n", b"\r\r\n"]


def random_file(rng: random.Random) -> bytes:
    """A few lines, many of them alike, with any mix of endings and perhaps no newline at the end."""
    words = [b"", b"a", b"b = 1", b"-minus", b"+plus", b"@@ -1 +1 @@", b"\\ No newline", b"\xc3\xa4", b"x\ry"]
    ending = rng.choice(ENDINGS)
    lines = [rng.choice(words) + (ending if rng.random() < 0.9 else b"\n") for _ in range(rng.randrange(40))]
    data = b"".join(lines)
    return data.removesuffix(b"\n") if rng.random() < 0.3 else data


def random_edit(rng: random.Random, data: bytes) -> bytes:
    lines = split_lines(data)
    for _ in range(rng.randrange(1, 6)):
        spot = rng.randrange(len(lines) + 1)
        lines[spot : spot + rng.randrange(3)] = [b"new %d\n" % rng.randrange(9)] * rng.randrange(3)
    edited = b"".join(lines)
    return edited.removesuffix(b"\n") if rng.random() < 0.2 else edited


def git_apply(folder: Path, before: bytes, diff: str) -> bytes:
    """What git makes of it, told to be strict too."""
    (folder / "file").write_bytes(before)
    (folder / "file.diff").write_bytes(diff.encode())
    command = ["git", "apply", "--unidiff-zero", "--whitespace=nowarn", "file.diff"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return (folder / "file").read_bytes()


def test_random_edits_round_trip() -> None:
    rng = random.Random(20261130)
    for _ in range(1500):
        before = random_file(rng)
        after = random_edit(rng, before)
        for context in (0, 1, 3):
            diff = make_diff(before, after, "file", context=context)
            if before == after:
                assert diff == ""
                continue
            assert apply_diff(before, diff, "file") == after
            back = make_diff(after, before, "file", context=context)
            assert apply_diff(after, back, "file") == before


def test_any_changed_byte_in_a_hunk_is_refused() -> None:
    rng = random.Random(4)
    refused = 0
    for _ in range(150):
        before = random_file(rng)
        after = random_edit(rng, before)
        # All of the file is context here, so every byte counts.
        diff = make_diff(before, after, "file", context=1000)
        if before == after:
            continue
        for spot in rng.sample(range(len(before)), min(len(before), 25)):
            changed = before[:spot] + bytes([before[spot] ^ 1]) + before[spot + 1 :]
            with pytest.raises(
                DiffError, match=r"^file: hunk 1 \(line 3 of the diff\) does not fit at line \d+"
            ):
                apply_diff(changed, diff, "file")
            refused += 1
    assert refused > 1000


def test_a_moved_hunk_is_refused() -> None:
    """GNU patch would find it two lines below and apply it with an offset."""
    before = b"".join(b"line %d\n" % number for number in range(20))
    diff = make_diff(before, before.replace(b"line 9\n", b"line nine\n"), "file")
    with pytest.raises(DiffError, match=r"line 7: expected b'line 6\\n', found b'line 4\\n'"):
        apply_diff(b"two\nmore\n" + before, diff, "file")


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_the_same_bytes_as_git_on_real_files(path: Path, tmp_path: Path) -> None:
    rng = random.Random(path.name)
    before = path.read_bytes()
    for _ in range(15):
        lines = split_lines(before)
        for _ in range(rng.randrange(1, 8)):
            spot = rng.randrange(len(lines))
            lines[spot : spot + rng.randrange(4)] = [b"    changed()\n"] * rng.randrange(4)
        after = b"".join(lines)
        diff = make_diff(before, after, "file")
        if not diff:
            continue
        assert apply_diff(before, diff, "file") == after
        assert git_apply(tmp_path, before, diff) == after


def test_diffs_that_git_made_apply(tmp_path: Path) -> None:
    before = REAL[0].read_bytes()
    after = before.replace(b"import os", b"import os  # here", 1).removesuffix(b"\n")
    (tmp_path / "a").write_bytes(before)
    (tmp_path / "b").write_bytes(after)
    command = ["git", "diff", "--no-index", "--no-color", "a", "b"]
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).stdout
    assert made.startswith(b"diff --git")
    assert apply_diff(before, made, "file") == after


def test_files_are_added_and_removed() -> None:
    text = b"one\ntwo"
    added = make_diff(None, text, "new.py")
    assert added.startswith("--- /dev/null\n+++ b/new.py\n")
    assert apply_diff(None, added, "new.py") == text
    removed = make_diff(text, None, "new.py")
    assert apply_diff(text, removed, "new.py") is None
    with pytest.raises(DiffError, match="adds this file, but it exists"):
        apply_diff(b"", added, "new.py")
    with pytest.raises(DiffError, match="changes this file, but it does not exist"):
        apply_diff(None, removed, "new.py")
    with pytest.raises(DiffError, match=r"does not fit|has 1 lines more"):
        apply_diff(text + b"\nthree\n", removed, "new.py")


@pytest.mark.parametrize(
    ("diff", "said"),
    [
        ("", "line 1 of the diff: no '---'"),
        ("--- a\n+++ b\n", "line 2 of the diff: there are no hunks"),
        ("--- a\n+++ b\n@@ -1 @@\n", "line 3 of the diff: expected '@@ -a,b"),
        ("--- a\n+++ b\n@@ -1,2 +1 @@\n-one\n", r"hunk 1 \(line 3 of the diff\) is cut off"),
        ("--- a\n+++ b\n@@ -1 +1 @@\n-one\n+1\n+2\n", "line 6 of the diff: expected '@@"),
        ("--- a\n+++ b\n@@ -1 +1 @@\n-one\n*1\n", "hunk 1, line 5 of the diff: a line begins with"),
        ("--- a\n+++ b\n@@ -9 +9 @@\n-one\n+1\n", r"hunk 1 .* begins at line 9, the file has 2"),
        ("--- a\n+++ b\n@@ -1 +2 @@\n-one\n+1\n", r"hunk 1 .* says \+2, the hunks above it lead to \+1"),
        (
            "--- a\n+++ b\n@@ -1 +1 @@\n-one\n+1\n@@ -1 +1 @@\n-one\n+2\n",
            "hunk 2 .* before the end of the one",
        ),
        ("--- a\n+++ b\n@@ -1 +1 @@\n-one\n+1\n\\ No newline at end of file\n", "the file goes on after it"),
        ("--- a\n+++ b\n@@ -1 +1 @@\n-one\r\n+1\n", "the line ends in LF, expected CRLF"),
        ("--- a\n+++ b\n@@ -2,2 +2 @@\n-two\n-three\n+2\n", "line 3: expected b'three.n', the file ends"),
        ("--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-one\n+1\n", "from nothing to nothing"),
    ],
)
def test_errors_name_the_hunk_and_the_line(diff: str, said: str) -> None:
    with pytest.raises(DiffError, match=said):
        apply_diff(b"one\ntwo\n", diff, "file")
