"""How a cut must end, by the order of points alone, and how it did end, by what is on the host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .box import present
from .points import When
from .served import ServedBox
from .strikes import Strike

Json = Any
Point = tuple[str, When]
ENTRIES = frozenset(
    {"opened", "starting", "done", "check", "verdict", "failed", "evidence", "settling", "closed"}
    | {"undoing", "undone", "undo_failed"}
)
CONTROL = {"deploy": "deployed", "deploy that fails": "rolled back", "rollback": "deployed"}
TOUCHING = "starting stop"
"""The first step that has something to take back, in every plan."""


@dataclass(frozen=True)
class Course:
    """The points that an undisturbed run of a plan passes, in order."""

    plan: str
    points: list[Point]

    def at(self, point: str, when: When) -> int:
        return self.points.index((point, "after" if when == "after" else "before"))

    def durable(self, at: int) -> set[str]:
        """Entries that are on disk once the point of this number is passed."""
        passed = self.points[: at + 1]
        return {name for name, when in passed if when == "after" and name.split()[0] in ENTRIES}

    @property
    def last_step(self) -> str:
        return [name for name, _ in self.points if name.startswith("starting ")][-1].removeprefix("starting ")

    def by_front(self, at: int) -> bool:
        """Whether the controller's end itself is there: no guardian was started yet."""
        return at <= self.at("opened", "after")

    def by_rule(self, durable: set[str]) -> str | None:
        """How whoever settles must end it, from what is durable."""
        if "opened" not in durable:
            return None
        if "closed" in durable or (f"done {self.last_step}" in durable and "settling" not in durable):
            return CONTROL[self.plan]
        return "rolled back" if TOUCHING in durable else "refused"


def outcomes(course: Course, point: str, when: When, by: str, strike: Strike) -> set[str | None]:
    """What the journal's last word may be; None where the deploy must never have become one.

    Where a disk is full it depends on single bytes whether the next entry still fits, so there it may end
    either way, as long as it ends.
    """
    if not strike.mend:
        return {outcome(course, point, when, by, kills=strike.kills)}
    return {CONTROL[course.plan], "rolled back", "refused"}


def outcome(course: Course, point: str, when: When, by: str, *, kills: bool) -> str | None:
    at = course.at(point, when)
    control = CONTROL[course.plan]
    front = course.by_front(at)
    if by == "lock break --force" and front:
        return control  # nobody answers yet, so nobody is known who could be killed
    if kills or (by == "controller killed" and front):
        return course.by_rule(course.durable(at))
    if by == "lock break" and not front:
        return _aborted(course, at)
    if by == "old server killed":
        captured = course.at("starting capture", "after")
        return "refused" if at <= captured else control
    if by == "new server killed":
        alive = course.at("started 1", "before") <= at < course.at("done await", "before")
        return "rolled back" if alive else control
    return control


def _aborted(course: Course, at: int) -> str:
    """It is looked for before each step, and all the time while the server loads."""
    last = course.at(f"starting {course.last_step}", "before")
    looks_inside = course.last_step == "await"
    if at >= last + (2 if looks_inside else 0):
        return CONTROL[course.plan]
    name = course.points[at][0]
    touched = TOUCHING in course.durable(at) or name == TOUCHING
    return "rolled back" if touched else "refused"


@dataclass(frozen=True)
class State:
    """What a box must look like to be exactly as before, or exactly as wanted."""

    files: dict[str, bytes]
    server: tuple[str, str]
    """Name, and the bytes of a.py that it was started on."""


@dataclass
class Before:
    """Taken of a box when its deploy is about to start."""

    plan: str
    box: ServedBox
    attributes: dict[str, tuple[int, int, int]] = field(init=False)

    def __post_init__(self) -> None:
        self.attributes = self.box.attributes()

    def state(self, which: str) -> State:
        """`old` or `new` of this plan; a rollback's `new` is what was there first."""
        first = (which == "old") == (self.plan != "rollback")
        files = self.box.before if first else self.box.after
        words = files["a.py"]
        assert words
        return State({**present(files), "__init__.py": b""}, ("old" if first else "new", words.decode()))

    def ended(self, *, server_gone: bool) -> tuple[str, str]:
        """(`old`, `new` or `between`, what it is that fits neither)."""
        wrong = {which: self._differs(self.state(which), server_gone=server_gone) for which in ("old", "new")}
        fits = [which for which, what in wrong.items() if not what]
        return (fits[0], "") if fits else ("between", f"not old: {wrong['old']}; not new: {wrong['new']}")

    def _differs(self, wanted: State, *, server_gone: bool) -> list[str]:
        tree, attributes = self.box.tree(), self.box.attributes()
        wrong = [f"{name} has other bytes" for name in wanted.files if tree.get(name) != wanted.files[name]]
        wrong += [f"{name} is there" for name in tree if name not in wanted.files]
        wrong += [
            f"{name} is {now}, was {self.attributes.get(name)}"
            for name, now in attributes.items()
            if name in self.attributes and now != self.attributes[name]
        ]
        added = [now for name, now in attributes.items() if name not in self.attributes]
        wrong += [f"an added file has mode {mode:o}" for mode, _, _ in added if mode != 0o644]
        if not any(name.startswith("gate/") for name in wanted.files) and (self.box.root / "gate").exists():
            wrong.append("a folder of the gate is left")
        serving = self.box.serving()
        if serving != wanted.server and not (serving is None and server_gone):
            wrong.append(f"{serving} serves, not {wanted.server}")
        names = set(self.box.servers().values())
        if names - {wanted.server[0]}:
            wrong.append(f"processes of {names}")
        return wrong


def server_may_be_gone(course: Course, point: str, when: When, by: str, how: str | None) -> bool:
    """Where it was killed from outside when the deploy had nothing to do with it (any more)."""
    at = course.at(point, when)
    if by == "old server killed":
        restored = ("undone stop", "before") in course.points and at >= course.at("undone stop", "before")
        return how == "refused" or restored
    if by == "new server killed":
        return how == "deployed" and at >= course.at("done await", "before")
    if by == "reboot":
        restored = "undone stop" in course.durable(at)
        signalled = ("stopping.json 1", "after") in course.points[: at + 1]
        return how != "rolled back" or restored or not signalled
    return False
