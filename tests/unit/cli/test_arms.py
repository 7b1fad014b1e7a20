"""Arms by launches, with the host played: what is deployed, measured and taken back, and in which order."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from specops.cli import arms, follow, measuring, prove, wishes
from specops.cli.arms import Launches
from specops.cli.measuring import Kept
from specops.cli.reach import Reach
from specops.config.playbook import load_playbook
from specops.engine import planner, rollback
from specops.engine.outcome import Deployed, Outcome, RolledBack
from specops.engine.planner import Nothing
from specops.sweep.plan import Measure

ARMS = ("no-spec", "always-on", "gated")
notes: list[str] = []
MEASURE = Measure(levels=(1, 8), rates=(), repeats=3, window_s=2.0)


@dataclass
class Played:
    """What happened to the host, in words."""

    story: list[str] = field(default_factory=list)
    ends: dict[str, Outcome] = field(default_factory=dict)
    """How the deploy of an arm ends, where it is not well."""
    served: str = ""
    """The arm that serves already."""
    smoke_code: int = 0
    break_at: str = ""
    """Measuring this arm ends early."""
    stack: list[str] = field(default_factory=list)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    host = Played()

    def make_plan(place: Any, book: Any, connector: Any) -> Any:
        name = book.name.partition("/")[2]
        return Nothing(facts=cast(Any, None), why="so") if name == host.served else SimpleNamespace(id=name)

    def run(self: Any, plan: Any) -> Outcome:
        if plan.id == "rollback":
            host.story.append(f"take back {host.stack.pop()}")
            return Deployed(deploy="r", serving="it")
        outcome = host.ends.get(plan.id, Deployed(deploy="d", serving="it"))
        host.story.append(f"deploy {plan.id}")
        if isinstance(outcome, Deployed):
            host.stack.append(plan.id)
        return outcome

    def measure(at: Any, measure: Measure, kept: Kept, *, arms: Any, first_repeat: int, **more: Any) -> None:
        name = arms[0]["name"]
        levels = "" if measure.levels == MEASURE.levels else f" at {measure.levels}"
        host.story.append(f"measure {name} {measure.repeats} from {first_repeat}{levels}")
        kept.levels.append({"arm": name})
        if name == host.break_at:
            kept.ended = "C=8: the server died"

    def smoke(at: Reach, **more: Any) -> tuple[int, str, int]:
        host.story.append(f"smoke {at.need_playbook().name.partition('/')[2]}")
        return host.smoke_code, "none", 5

    monkeypatch.setattr(planner, "make_plan", make_plan)
    monkeypatch.setattr(wishes, "make_wish", lambda book, **more: book)
    monkeypatch.setattr(rollback, "make_rollback", lambda *args, **more: SimpleNamespace(id="rollback"))
    monkeypatch.setattr(follow.Follower, "run", run)
    monkeypatch.setattr(prove, "smoke_running", smoke)
    monkeypatch.setattr(arms, "measure_running", measure)
    monkeypatch.setattr(Launches, "_load_s", lambda self: 100.0)
    assert measuring.measure_running is not measure
    return host


def sweep(refine: Any = None) -> Kept:
    notes.clear()
    said = SimpleNamespace(note=notes.append, outcome=lambda outcome: None)
    place = SimpleNamespace(host="box")
    book = load_playbook("lab", (), {"model": "/m", "draft": "/d"})
    at = Reach(output=cast(Any, said), connector=cast(Any, None), place=cast(Any, place), playbook=book)
    kept = Kept()
    assert Launches(at, ARMS, MEASURE, kept).run(yes=True, refine=refine)
    return kept


def test_there_and_back_again_and_everything_is_taken_back(played: Played) -> None:
    assert sweep().ended == "finished"
    assert notes[0].endswith("; about 11 min, at 100 s a load"), "6 loads and 18 windows of 2 s"
    assert played.story == [
        "deploy no-spec", "measure no-spec 2 from 1",
        "deploy always-on", "measure always-on 2 from 1",
        "deploy gated", "measure gated 3 from 1",
        "take back gated", "measure always-on 1 from 3",
        "take back always-on", "measure no-spec 1 from 3",
        "take back no-spec",
    ]  # fmt: skip


def test_a_closer_look_is_taken_at_every_arm_while_it_is_up(played: Played) -> None:
    sweep(lambda kept: [3, 5])
    looks = [line for line in played.story if line.endswith("at (3, 5)")]
    assert looks == [f"measure {arm} 3 from 1 at (3, 5)" for arm in reversed(ARMS)]


def test_an_arm_that_fails_ends_it_and_the_ones_before_are_taken_back(played: Played) -> None:
    played.ends["always-on"] = RolledBack(deploy="d", cause="S3 failed", serving="the old one")
    kept = sweep()
    assert kept.ended == "arm always-on was not deployed: S3 failed"
    assert played.story[2:] == ["deploy always-on", "take back no-spec"]


def test_an_arm_that_was_kept_without_a_verdict_is_not_measured(played: Played) -> None:
    played.ends["always-on"] = Deployed(deploy="d", serving="it", inconclusive=("S4",))
    kept = sweep()
    assert kept.ended == "arm always-on has no passed smoke test: S4"
    assert played.story[2:] == ["deploy always-on", "take back always-on", "take back no-spec"]


def test_an_arm_that_serves_already_passes_its_smoke_test_again_first(played: Played) -> None:
    played.served = "no-spec"
    assert sweep().ended == "finished"
    assert played.story[:2] == ["smoke no-spec", "measure no-spec 2 from 1"]
    assert played.story[-1] == "measure no-spec 1 from 3", "nothing was deployed for it"
    played.story.clear()
    played.smoke_code = 16
    assert sweep().ended == "arm no-spec has no passed smoke test: exit 16"
    assert played.story == ["smoke no-spec"]


def test_a_server_that_dies_in_an_arm_ends_it_and_all_is_taken_back(played: Played) -> None:
    played.break_at = "always-on"
    kept = sweep()
    assert [level["arm"] for level in kept.levels] == ["no-spec", "always-on"]
    assert played.story[-2:] == ["take back always-on", "take back no-spec"]


def test_after_ctrl_c_the_arm_that_is_up_stays(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(at: Any, measure: Any, kept: Kept, **more: Any) -> None:
        kept.levels.append({"arm": "no-spec"})
        kept.ended = "interrupted by Ctrl-C"

    monkeypatch.setattr(arms, "measure_running", interrupted)
    assert sweep().ended == "interrupted by Ctrl-C"
    assert played.story == ["deploy no-spec"]
