from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specops.remote import files, journal
from specops.remote.context import Context, OpFailed
from specops.remote.deploy import Deploy
from specops.remote.executor import execute
from specops.remote.plan import check_plan
from tests.faults.box import Box, step

CHECK: dict[str, Any] = {"op": "files.check", "args": {"files": []}}
UNDO = {"op": "files.restore", "args": {"files": []}}


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path / "box")


def run_here(box: Box, plan: dict[str, Any], aborted: str = "") -> tuple[list[str], dict[str, Any]]:
    """The kinds of its journal's entries and the last of them, run in this process."""
    import json

    folder = box.deploy_dir()
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps(plan))
    deploy = Deploy(box.instance, "d1", box.folder / "agent.zip")
    deploy.record({"entry": "opened", "plan_id": "d1", "kind": "deploy", "steps": len(plan["steps"])})
    execute(deploy, lambda: aborted)
    entries = journal.read(folder)
    return [entry["entry"] for entry in entries], entries[-1]


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ({"format": 9}, "format 1, not 9"),
        ({"id": "../x"}, "not an id"),
        ({"kind": "wish"}, "neither deploy nor rollback"),
        ({"steps": []}, "no steps"),
        ({"steps": [{"name": "s", "phase": "swap", "do": CHECK}]}, r"step 0 \(s\): undo is missing"),
        ({"steps": [{"name": "s", "phase": "lunch", "do": CHECK, "undo": UNDO}]}, "no known phase: 'lunch'"),
        ({"steps": [step("s", "swap", "files.eat", {})]}, "no operation 'files.eat'"),
        ({"steps": [step("s", "swap", "files.check", {}, {"op": "files.spit"})]}, "undo: .*'files.spit'"),
        ({"steps": [step("s", "swap", "files.check", {}, {"irreversible": "x"})] * 2}, "not the last"),
    ],
)
def test_a_plan_is_refused_before_anything_is_written(box: Box, broken: dict[str, Any], why: str) -> None:
    with pytest.raises(OpFailed, match=why) as error:
        check_plan({**box.plan(), **broken})
    assert error.value.code == "refused"


def test_a_failure_before_any_change_is_a_refusal(box: Box) -> None:
    (box.root / "a.py").write_bytes(b"mine\n")
    kinds, last = run_here(box, box.plan())
    assert kinds == ["opened", "starting", "failed", "settling", "closed"]
    assert (last["how"], last["cause"]["id"], last["cause"]["step"]) == ("refused", "drifted", "check")
    assert last["cause"]["host_state"] == "nothing was changed"


def test_a_bug_in_an_operation_is_a_failure_like_any_other(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(ctx: Context, args: dict[str, Any]) -> None:
        raise ZeroDivisionError("integer division")

    monkeypatch.setitem(files.OPS, "files.bug", bug)
    _, last = run_here(box, box.plan([step("s", "launch", "files.bug", {}, UNDO)]))
    assert (last["how"], last["cause"]["id"]) == ("rolled back", "internal")
    assert "ZeroDivisionError" in last["cause"]["message"]


def test_an_abort_between_steps_starts_no_other(box: Box) -> None:
    kinds, last = run_here(box, box.plan(), aborted="lunch")
    assert "starting" not in kinds
    assert last["cause"]["message"] == "aborted: lunch"


def test_an_irreversible_last_step_has_no_way_back(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(ctx: Context, args: dict[str, Any]) -> None:
        raise OpFailed("late", "half of it is gone")

    monkeypatch.setitem(files.OPS, "files.late", late)
    steps = [step("s", "swap", "files.check", {"files": []}, UNDO)]
    steps.append(step("forget", "commit", "files.late", {}, {"irreversible": "deletes"}))
    kinds, last = run_here(box, box.plan(steps))
    assert "undoing" not in kinds
    assert (last["how"], last["failures"][0]["message"]) == ("deployed", "half of it is gone")


def test_the_root_cause_that_a_watcher_saw_is_in_the_cause(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(ctx: Context, args: dict[str, Any]) -> None:
        ctx.record(
            {"entry": "verdict", "cause": {"id": "oom", "message": "out of memory", "rank": 1, "at": 1.0}}
        )
        raise OpFailed("died", "the server died")

    monkeypatch.setitem(files.OPS, "files.die", die)
    _, last = run_here(box, box.plan([step("s", "ready", "files.die", {}, UNDO)]))
    assert last["cause"]["message"] == "the server died"
    assert last["cause"]["verdict"]["id"] == "oom"
