"""Bugs in the executor and on the way to it, kept as diffs; each must turn the fault suite red.

Or the suite proves nothing. A diff's first line says what is wrong; hunks are found by their lines.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specops.steps.diff import parse_diff

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
SUITE = ("test_owed.py", "test_order.py", "test_deaths.py", "test_links.py", "test_cuts.py")
"""Of tests/faults, quickest first: a hunt ends with the first test that fails."""
HUNT_S = 1800.0


@dataclass(frozen=True)
class Bug:
    id: str
    what: str
    diffs: dict[str, bytes]
    """Path in the project -> the diff of that file."""


@dataclass(frozen=True)
class Found:
    bug: Bug
    by: str
    """The test that failed; empty where none did."""
    output: str


NO_BUG = Bug("none", "Nothing: where the suite is red without a bug, whatever is red finds each.", {})


def read_bugs() -> list[Bug]:
    return [read_bug(path) for path in sorted(HERE.glob("*.diff"))]


def read_bug(path: Path) -> Bug:
    what, _, rest = path.read_text().partition("\n")
    parts = re.split(r"(?m)^(?=--- a/)", rest)
    diffs = {part.splitlines()[0].removeprefix("--- a/"): part.encode() for part in parts if part}
    return Bug(path.stem, what, diffs)


def plant(bug: Bug, path: str, before: bytes) -> bytes:
    """The bytes of a file with the bug in it. Raises ValueError unless each hunk fits just one place."""
    _, _, hunks = parse_diff(bug.diffs[path], path)
    for hunk in hunks:
        old, new = b"".join(hunk.old_lines), b"".join(hunk.new_lines)
        if before.count(old) != 1:
            raise ValueError(f"{bug.id}: hunk {hunk.number} fits {before.count(old)} places of {path}")
        before = before.replace(old, new)
    return before


def hunt(bug: Bug, folder: Path) -> Found:
    """Run the fault suite on a copy of the package that has the bug, up to the first test that fails."""
    folder.chmod(0o755)  # some tests are other users, and read it too
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PROJECT / "specops", folder / "specops", ignore=ignore)
    (folder / "tests").mkdir()
    (folder / "tests/__init__.py").touch()
    for part in ("faults", "conformance"):
        shutil.copytree(PROJECT / "tests" / part, folder / "tests" / part, ignore=ignore)
    shutil.copy(PROJECT / "pyproject.toml", folder)
    for path in bug.diffs:
        (folder / path).write_bytes(plant(bug, path, (PROJECT / path).read_bytes()))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-xq", "-p", "no:cacheprovider"]
            + [f"tests/faults/{name}" for name in SUITE],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=HUNT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return Found(bug, "", f"no end within {HUNT_S} s: {str(error.stdout)[-4000:]}")
    by = next(_failed(done.stdout), "") if done.returncode == 1 else ""
    return Found(bug, by, done.stdout[-4000:] + done.stderr[-2000:])


def _failed(output: str) -> Iterator[str]:
    for line in output.splitlines():
        if line.startswith(("FAILED tests/", "ERROR tests/")):  # and no line of a captured log
            yield line.split()[1].removeprefix("tests/faults/")
