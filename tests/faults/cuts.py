"""A cut is a point of a deploy and what happens there; its row says how the deploy ended and what it left."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from specops.remote import history, journal, lock, notice

from . import disks, judge
from .box import LIMIT_S, Answer, Box
from .judge import Before, Course
from .points import Arm, Halt, When, note_bystanders
from .served import SECRETS, ServedBox, until
from .strikes import STRIKES, Struck, another_boot

Json = Any
PROJECT = Path(__file__).resolve().parents[2]
AT_ONCE = 6
ENOUGH = 512 * 1024 * 1024


@dataclass(frozen=True)
class Cut:
    plan: str
    point: str
    when: When
    by: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        return (self.plan, self.point, self.when, self.by)

    def __str__(self) -> str:
        return f"{self.plan}: {self.by} {self.when} {self.point!r}"


@dataclass(frozen=True)
class Row:
    cut: Cut
    ended: str
    """`old`, `new` or `between`, by bytes, modes, owners, and what serves."""
    outcome: str | None
    wrong: tuple[str, ...]
    """Why the outcome is not the right one."""
    leftovers: tuple[str, ...]

    @property
    def problem(self) -> str | None:
        fine = self.ended != "between" and not self.wrong and not self.leftovers
        return (
            None
            if fine
            else f"{self.cut}: ended {self.ended}, {self.outcome!r}, {self.wrong}, {self.leftovers}"
        )

    def as_json(self) -> dict[str, Json]:
        return {
            "plan": self.cut.plan,
            "entry": self.cut.point,
            "when": self.cut.when,
            "by": self.cut.by,
            "ended": self.ended,
            "outcome": self.outcome,
            "outcome_right": not self.wrong,
            "wrong": list(self.wrong),
            "leftovers": list(self.leftovers),
        }


@contextlib.contextmanager
def room() -> Iterator[Path]:
    """A folder for boxes, in memory where there is enough of it: SIGKILL cannot tell, and fsync is free."""
    fast = Path("/dev/shm")
    enough = fast.is_dir() and os.access(fast, os.W_OK) and shutil.disk_usage(fast).free > ENOUGH
    folder = Path(tempfile.mkdtemp(prefix="specops-faults-", dir=fast if enough else None))
    folder.chmod(0o755)
    saved, notice.BOARD = notice.BOARD, folder / "board"
    notice.BOARD.mkdir()
    notice.BOARD.chmod(0o1777)
    try:
        yield folder
    finally:
        notice.BOARD = saved
        shutil.rmtree(folder)


def make_plan(box: ServedBox, plan: str) -> dict[str, Json]:
    """For a rollback the deploy to take back is run first."""
    if plan == "deploy":
        return box.deploy_plan()
    if plan == "deploy that fails":
        return box.deploy_plan("fail")
    assert box.run(box.deploy_plan(), Arm([])).value["how"] == "deployed"
    box.await_free()
    return box.rollback_plan()


def read_course(folder: Path, plan: str) -> Course:
    """From an undisturbed run."""
    box = ServedBox(folder)
    try:
        value = box.run(
            make_plan(box, plan), Arm([], folder / "seen"), secrets={"key": SECRETS["request"]}
        ).value
        assert value["how"] == judge.CONTROL[plan], value
        box.await_free()
        lines = [line.split("\t") for line in (folder / "seen").read_text().splitlines()]
        return Course(plan, [(name, "after" if when == "after" else "before") for name, when in lines])
    finally:
        box.end()


def try_all(cuts: Iterable[Cut], courses: dict[str, Course], folder: Path) -> Iterator[Row]:
    """Every cut on an install and a server of its own, some at a time."""
    todo = list(cuts)
    for first in range(0, len(todo), AT_ONCE):
        note_bystanders()
        with contextlib.ExitStack() as stack:
            batch = [
                stack.enter_context(
                    contextlib.closing(Trial(cut, courses[cut.plan], folder / str(first + n)))
                )
                for n, cut in enumerate(todo[first : first + AT_ONCE])
            ]
            broken: dict[Trial, str] = {}
            for act in (Trial.begin, Trial.strike):
                for trial in batch:
                    with noting(trial, broken):
                        act(trial)
            for trial in batch:
                row = None
                with noting(trial, broken):
                    row = trial.end() if trial not in broken else None
                yield row or broken_row(trial.cut, broken[trial])


T = TypeVar("T")


@contextlib.contextmanager
def noting(trial: T, broken: dict[T, str]) -> Iterator[None]:
    """One trial that breaks is a row that fails, not the end of a run of hours."""
    try:
        yield
    except Exception as error:
        broken.setdefault(trial, "".join(traceback.format_exception(error))[-2000:])


def broken_row(cut: Cut, why: str) -> Row:
    return Row(cut, "between", None, (f"the trial broke: {why}",), ())


class Trial:
    """One cut on one box."""

    def __init__(self, cut: Cut, course: Course, folder: Path) -> None:
        self.cut, self.course = cut, course
        self.by = STRIKES[cut.by]
        uid = disks.unprivileged() if self.by.unprivileged else 0
        self.box = ServedBox(folder, uid=uid, disk=self.by.disk)
        self.answer: Answer | None = None
        self.struck = Struck(self.box, Halt(folder, cut.point, cut.when))
        self.failures: list[Json] | None = None

    def begin(self) -> None:
        self.plan = make_plan(self.box, self.cut.plan)
        self.before = Before(self.cut.plan, self.box)
        params = {"plan": self.plan, "blobs": self.box.blobs(), "secrets": {"key": SECRETS["request"]}}
        self.struck.deploy = self.plan["id"]
        self.struck.front, self.struck.out = self.box.start("run", params, Arm([self.struck.halt]))

    def strike(self) -> None:
        until(self.struck.halt.reached, LIMIT_S)
        self.by.act(self.struck)
        self.struck.halt.go.touch()

    def end(self) -> Row:
        self._settle()
        row = self._judge()
        return replace(row, leftovers=(*row.leftovers, *self.close()))

    def close(self) -> list[str]:
        """End what is left of it, whatever happened; what still holds its port then."""
        if self.struck.stranger:
            self.struck.stranger.kill()
            self.struck.stranger.wait()
        held = self.box.end()
        shutil.rmtree(self.box.folder, ignore_errors=True)
        return held

    def _settle(self) -> None:
        """Wait for whoever is left; `recover`, as from another machine, where nobody was."""
        if self.struck.out is None:
            os.waitpid(self.struck.front, 0)
        else:
            self.answer = self.box.finish(self.struck.front, self.struck.out, LIMIT_S)
        self.box.await_free(LIMIT_S)
        if self.by.mend:
            self.failures = self._failures()
            self.by.mend(self.struck)
        deploys = history.read_deploys(self.box.instance)
        self.alone = history.unfinished(deploys) is not None
        if self.alone or all(past.id != self.plan["id"] for past in deploys):
            self.answer = self.box.ask("recover", {}, self._as_another)
        elif self.answer is None or self.answer.result is None:
            self.answer = self.box.ask("follow", {"deploy": self.plan["id"]})
        self.box.await_free(LIMIT_S)

    def _failures(self) -> list[Json] | None:
        """Of a rollback that failed, as the controller was told; None where none did."""
        result = self.answer.result if self.answer else None
        if not result or not result["ok"] or result["value"]["how"] != journal.FAILED_ROLLBACK:
            return None
        failures: list[Json] = result["value"]["failures"]
        return failures

    def _as_another(self) -> None:
        Arm([])()
        if not self.by.same_boot:
            another_boot()

    def _judge(self) -> Row:
        cut, course = self.cut, self.course
        deploys = history.read_deploys(self.box.instance)
        mine = next((past for past in deploys if past.id == self.plan["id"]), None)
        how = str(mine.closed.get("how")) if mine else None
        gone = judge.server_may_be_gone(course, cut.point, cut.when, cut.by, how)
        ended, what = self.before.ended(server_gone=gone)
        wanted = judge.outcomes(course, cut.point, cut.when, cut.by, self.by)
        wrong = [what] if what else []
        if how not in wanted:
            wrong.append(f"the journal says {how!r}, not {wanted!r}")
        if ended != ("new" if how == "deployed" else "old"):
            wrong.append(f"{how!r} is not what is there")
        wrong += [*self._told_wrong(how), *self._serving_wrong(mine)]
        may = self.by.alone or self.by.mend or course.by_front(course.at(cut.point, cut.when))
        if self.alone and not may:
            wrong.append("nobody settled it until `recover`")
        if history.unfinished(deploys) is not None:
            wrong.append("it still owes something")
        if self.struck.stranger and self.struck.stranger.poll() is not None:
            wrong.append("a process that the next boot gave an old pid to was stopped")
        left = self.box.leftovers()
        if how != "deployed" and mine and (mine.dir / "vault.json").exists():
            left.append("the vault of a deploy that is not in force")
        return Row(cut, ended, how, tuple(wrong), tuple(left))

    def _told_wrong(self, how: str | None) -> list[str]:
        """What the controller was told at the end, and what others were told meanwhile."""
        result = self.answer.result if self.answer else None
        told = result["value"]["how"] if result and result["ok"] else None
        if how is None:
            how = "nothing to recover"
        wrong = [] if told == how else [f"it was told {told!r} ({result})"]
        if self.failures is not None and not (
            self.failures and all(f["step"] and f["message"] and f["next_command"] for f in self.failures)
        ):
            wrong.append(f"a rollback failed and said no more than {self.failures}")
        if self.cut.by == "two more deploys":
            codes = [said["error"]["code"] for said in self.struck.said if not said["ok"]]
            wrong += [] if codes == ["locked", "locked"] else [f"the others were told {codes}"]
        return wrong

    def _serving_wrong(self, mine: history.Past | None) -> list[str]:
        """The last word on what serves must be true, unless it was cut down after that word."""
        if mine is None or mine.now.closed is None or self.cut.point == "closed":
            return []
        said, servers = mine.closed.get("serving") or {}, self.box.servers()
        if said.get("pid") and said["pid"] not in servers:
            return [f"it says that {said} serves, and {servers} are there"]
        if not servers and not said.get("line", "").startswith(
            ("nothing", "as before: nothing", "the old server ended")
        ):
            return [f"nothing serves, and it says {said}"]
        return []


def guardian_pid(box: Box) -> int:
    """Of a running deploy: the parent of the agent that the lock names."""
    owner = lock.read_owner(box.instance)
    assert owner
    stat = Path(f"/proc/{owner['pid']}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])
