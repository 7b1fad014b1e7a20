from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specops.remote import files, journal, settle
from specops.remote.context import Context, OpFailed
from specops.remote.deploy import Deploy
from tests.faults.box import Box


@pytest.fixture
def deploy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deploy:
    """Two steps started, with undos that write down their name; no plan.json: the journal has to do."""
    monkeypatch.setattr(settle, "RETRY_PAUSE_S", 0.0)
    box = Box(tmp_path / "box")
    box.deploy_dir().mkdir(parents=True)
    opened = Deploy(box.instance, "d1", box.folder / "agent.zip")
    opened.record({"entry": "opened", "plan_id": "d1", "kind": "deploy", "steps": 3})
    for index in (0, 1):
        undo = {"op": "files.note", "args": {"name": index}}
        opened.record(
            {"entry": "starting", "index": index, "name": f"s{index}", "phase": "swap", "undo": undo}
        )
    return opened


def test_an_undo_is_tried_twice_and_all_are_tried(deploy: Deploy, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def note(ctx: Context, args: dict[str, Any]) -> dict[str, Any]:
        tried.append(args["name"])
        if tried.count(1) < 2 and args["name"] == 1:
            raise OpFailed("busy", "not yet")
        return {"serving": {"line": f"after {args['name']}"}}

    monkeypatch.setitem(files.OPS, "files.note", note)
    settle.settle(deploy, {"id": "x", "message": "why"})
    assert tried == [1, 1, 0]
    closed = journal.replay_deploy(deploy.dir).closed
    assert closed
    assert (closed["how"], closed["serving"]) == ("rolled back", {"line": "after 0"})
    settle.settle(deploy, {"id": "y", "message": "again"})
    assert tried == [1, 1, 0], "what is closed is left alone"


def test_a_retried_rollback_undoes_only_what_is_owed(deploy: Deploy, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = [True]
    tried: list[int] = []

    def note(ctx: Context, args: dict[str, Any]) -> None:
        tried.append(args["name"])
        if args["name"] == 1 and stuck[0]:
            raise OpFailed("busy", "no")

    monkeypatch.setitem(files.OPS, "files.note", note)
    settle.settle(deploy, {"id": "x", "message": "first"})
    closed = journal.replay_deploy(deploy.dir).closed
    assert closed
    assert (closed["how"], [f["step"] for f in closed["failures"]]) == ("rollback failed", ["s1"])
    stuck[0] = False
    settle.settle(deploy, {"id": "y", "message": "second"})
    assert tried == [1, 1, 0, 1]
    closed = journal.replay_deploy(deploy.dir).closed
    assert closed
    assert (closed["how"], closed["cause"]["message"]) == ("rolled back", "first")
