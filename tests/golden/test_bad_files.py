"""Every complaint about a file, word for word: it begins with file:line and names the nearest valid key.

The expected text stands beside each bad file. After a deliberate change of words, rewrite them with
`python -m tests.golden.test_bad_files` and read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from specops.config.inventory import load_inventory
from specops.config.patch import load_patch
from specops.config.playbook import load_playbook
from specops.errors import ConfigError

BAD = Path(__file__).parent / "bad"
CASES = sorted(str(path.relative_to(BAD)) for path in BAD.rglob("*.yaml"))


def complaint(case: str) -> str:
    """What is said about the file, with paths relative to its folder."""
    path = BAD / case
    kind = Path(case).parts[0]
    try:
        if kind == "inventory":
            load_inventory(path.name)
        elif kind == "playbook":
            load_playbook(path.name, variables={"model": "/m", "draft": "/d"})
        else:
            load_patch(Path(path.parent.name))
    except ConfigError as error:
        return error.message
    return "accepted"


def folder_of(case: str) -> Path:
    return BAD / Path(case).parts[0]


@pytest.mark.parametrize("case", CASES)
def test_complaint(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder_of(case))
    said = complaint(case)
    assert said.startswith(f"{Path(case).relative_to(Path(case).parts[0])}:")
    assert said == (BAD / case).with_suffix(".txt").read_text().rstrip("\n")


def test_there_are_cases_of_each_kind() -> None:
    assert {Path(case).parts[0] for case in CASES} == {"inventory", "playbook", "patch"}
    assert len(CASES) >= 15


def rewrite() -> None:
    for case in CASES:
        os.chdir(folder_of(case))
        (BAD / case).with_suffix(".txt").write_text(complaint(case) + "\n")


if __name__ == "__main__":
    rewrite()
