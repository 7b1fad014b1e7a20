"""Which cuts are tried: every one by `make faults`, with the tests a part that still visits every entry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .cuts import Cut, read_course
from .judge import CONTROL, ENTRIES, TOUCHING, Course
from .points import When

DEATHS = ("agent killed", "agent and guardian killed")
FROM_OUTSIDE = (
    "controller killed",
    "connection cut",
    "lock break",
    "lock break --force",
    "old server killed",
    "new server killed",
    "disk of the install full",
    "disk of the state full",
    "install read-only",
    "state read-only",
    "permission denied",
)
"""Tried with the two deploys; a rollback differs from them in its steps, not in who may interfere."""
NOT_TORN = ("started", "signal", "remove")
STRIDE = 7
"""Of what comes from outside, and of reboots, the tests try one in so many."""
ALWAYS = (
    # The server's note is there, and after a reboot its pid may be anybody's.
    Cut("deploy that fails", "done launch", "after", "reboot"),
    # Told to end when it has ended: nobody reads that any more, and nobody may find it later.
    Cut("deploy", "closed", "after", "lock break"),
)


def read_courses(folder: Path) -> dict[str, Course]:
    return {plan: read_course(folder / f"course-{number}", plan) for number, plan in enumerate(CONTROL)}


def every(courses: dict[str, Course]) -> list[Cut]:
    return [*_deaths(courses), *_others(courses)]


def some(courses: dict[str, Course]) -> list[Cut]:
    """Each point once, each time in another way; and every n-th of what comes from outside."""
    chosen = []
    for course in courses.values():
        for number, name in enumerate(_own(course)):
            whens = _whens(name)
            chosen.append(Cut(course.plan, name, whens[number % len(whens)], DEATHS[number // 3 % 2]))
    return [*dict.fromkeys((*ALWAYS, *chosen, *list(_others(courses))[::STRIDE]))]


def _deaths(courses: dict[str, Course]) -> Iterator[Cut]:
    for course in courses.values():
        for name in _own(course):
            yield from (Cut(course.plan, name, when, by) for when in _whens(name) for by in DEATHS)


def _others(courses: dict[str, Course]) -> Iterator[Cut]:
    for course in courses.values():
        yield from (Cut(course.plan, name, "after", "reboot") for name in _own(course))
        if course.plan == "rollback":
            continue
        entries = [name for name in _names(course) if name.split()[0] in ENTRIES]
        for by in FROM_OUTSIDE:
            # Before the first change it is all the same whether the deploy would fail in the end.
            late = entries if course.plan == "deploy" else entries[entries.index(TOUCHING) :]
            yield from (Cut(course.plan, name, "after", by) for name in late)
        if course.plan == "deploy":
            yield from (Cut(course.plan, name, "before", "two more deploys") for name in entries)


def _names(course: Course) -> list[str]:
    return [name for name, when in course.points if when == "after"]


def _own(course: Course) -> list[str]:
    """Without what a deploy that fails has in common with one that does not: after a death both are one."""
    names = _names(course)
    return names[names.index("starting smoke") :] if course.plan == "deploy that fails" else names


def _whens(name: str) -> tuple[When, ...]:
    return ("before", "after") if name.split()[0] in NOT_TORN else ("before", "torn", "after")
