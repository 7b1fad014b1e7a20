"""A death at any point of a deploy leaves just the old files or just the new, and says which."""

from __future__ import annotations

from pathlib import Path

import pytest

from specops.remote import history, journal

from .box import Box
from .cuts import By, Cut, When, run_all

STEPS = 5
FIRST_SWAP = 3
LAST_DONE = 1 + 2 * STEPS
GOOD_ENTRIES = LAST_DONE + 1
BAD_ENTRIES = 1 + 2 * STEPS + 1 + 2 + 4 + 1
"""opened, five steps, the bad step's start, failed and settling, two undos, closed."""
SWAPPED = 1 + 4
RESTORED = 2 + 1
"""Renames of the way back: the files that did not exist before are removed, not renamed."""

whens = pytest.mark.parametrize("when", ["before", "torn", "after"])
bys = pytest.mark.parametrize("by", ["agent", "agent and guardian"])


def boxes(tmp_path: Path, count: int) -> list[Box]:
    return [Box(tmp_path / str(number)) for number in range(1, count + 1)]


def how_it_ended(box: Box) -> str | None:
    now = journal.replay_deploy(box.deploy_dir())
    return None if now.closed is None else str(now.closed["how"])


def problem(cut: Cut, box: Box, expected: str | None) -> str | None:
    """What is wrong with the end of one cut; None when nothing is."""
    deploys = history.read_deploys(box.instance)
    stack = [past.id for past in history.current_stack(deploys)]
    fine = {
        "outcome": how_it_ended(box) == expected,
        "files": box.is_new() if expected == "deployed" else box.is_old(),
        "leftovers": box.leftovers() == [],
        "nothing owed": history.unfinished(deploys) is None,
        "in force": stack == (["d1"] if expected == "deployed" else []),
    }
    wrong = [name for name, holds in fine.items() if not holds]
    return f"{cut}: {wrong}, {how_it_ended(box)!r}, {box.leftovers()}" if wrong else None


def expected_of_good(at: int, when: When) -> str | None:
    durable = at if when == "after" else at - 1
    if durable == 0:
        return None
    if durable >= LAST_DONE:
        return "deployed"
    return "rolled back" if durable >= 2 * FIRST_SWAP + 2 else "refused"


def expected_of_bad(at: int, when: When) -> str | None:
    expected = expected_of_good(at, when)
    return "rolled back" if expected == "deployed" else expected


@whens
@bys
def test_a_death_at_any_entry_of_a_good_plan(tmp_path: Path, when: When, by: By) -> None:
    cuts = [
        (Cut(what="entry", at=at, when=when, by=by), box, box.plan())
        for at, box in enumerate(boxes(tmp_path, GOOD_ENTRIES), 1)
    ]
    found = [problem(cut, box, expected_of_good(cut.at, when)) for cut, box in run_all(cuts)]
    assert [line for line in found if line] == []


@whens
@bys
def test_a_death_at_any_entry_of_a_plan_that_fails(tmp_path: Path, when: When, by: By) -> None:
    cuts = [
        (Cut(what="entry", at=at, when=when, by=by), box, box.plan(box.bad_steps()))
        for at, box in enumerate(boxes(tmp_path, BAD_ENTRIES), 1)
    ]
    found = [problem(cut, box, expected_of_bad(cut.at, when)) for cut, box in run_all(cuts)]
    assert [line for line in found if line] == []


@whens
@bys
def test_a_death_at_any_rename(tmp_path: Path, when: When, by: By) -> None:
    cuts = [
        (Cut(what="rename", at=at, when=when, by=by), box, box.plan(box.bad_steps()))
        for at, box in enumerate(boxes(tmp_path, SWAPPED + RESTORED), 1)
    ]
    found = [problem(cut, box, "rolled back") for cut, box in run_all(cuts)]
    assert [line for line in found if line] == []
