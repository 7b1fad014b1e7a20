"""Whatever is cut, wherever: the host ends exactly as before or exactly as wanted, and says which."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from . import table
from .cuts import room, try_all
from .judge import ENTRIES, Course

ENOUGH = 3
"""Problems to see before giving up: where one is, there are often dozens."""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with room() as made:
        yield made


@pytest.fixture(scope="module")
def courses(folder: Path) -> dict[str, Course]:
    return table.read_courses(folder)


def test_the_part_that_is_tried_visits_every_entry(courses: dict[str, Course]) -> None:
    entries = {name for c in courses.values() for name, _ in c.points if name.split()[0] in ENTRIES}
    assert entries <= {cut.point for cut in table.some(courses)}
    assert {name.split()[0] for name in entries} >= {*ENTRIES} - {"verdict", "undo_failed"}
    assert len(set(table.every(courses))) >= 200


@pytest.mark.parametrize("plan", ["deploy", "deploy that fails", "rollback"])
def test_it_ends_old_or_new_and_says_which(courses: dict[str, Course], folder: Path, plan: str) -> None:
    cuts = [cut for cut in table.some(courses) if cut.plan == plan]
    rows = try_all(cuts, courses, folder / plan.replace(" ", "-"))
    problems = (row.problem for row in rows)
    assert list(islice((line for line in problems if line), ENOUGH)) == []
