"""A rollback that itself fails: exit 21, the cause and each undo that failed, what is true and what to do."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from specops.engine.deploy import outcome_of
from specops.engine.outcome import exit_code
from specops.remote import files, journal
from specops.remote.context import Context
from specops.ui.outcome import show_outcome

from .cuts import room
from .points import Arm
from .served import ServedBox


@pytest.fixture
def box() -> Iterator[ServedBox]:
    with room() as folder:
        made = ServedBox(folder / "box")
        yield made
        made.end()


def test_the_model_of_the_old_server_is_gone(box: ServedBox) -> None:
    model, away = box.folder / "models", box.folder / "away"

    def arm() -> None:
        Arm([])()
        judge = files.OPS["files.judge"]

        def judge_without(ctx: Context, args: dict[str, Any]) -> Any:
            model.rename(away)
            return judge(ctx, args)

        files.OPS["files.judge"] = judge_without

    value = box.run(box.deploy_plan("fail"), arm).value
    assert (value["how"], value["cause"]["message"]) == ("rollback failed", "S3 saw drafts above T")
    failure = value["failures"][0]
    assert (failure["step"], failure["code"], len(value["failures"])) == ("stop", "old_server_not_back", 1)
    assert failure["host_state"] == "its files are as before, but it does not serve"

    screen = io.StringIO()
    outcome = outcome_of(value, box.id)
    show_outcome(Console(file=screen, width=200), outcome, "box")
    assert exit_code(outcome) == 21
    said = screen.getvalue()
    for words in ("S3 saw drafts above T", "the old server does not come back", "specops recover --host box"):
        assert words in said
    assert f"nothing serves on port {box.port}" in said
    now = journal.replay_deploy(box.deploy_dir(box.id))
    assert now.owed == [4], "only the stop is still owed"
    assert (box.deploy_dir(box.id) / "evidence" / "cause.json").exists()
    assert box.is_old()

    away.rename(model)
    box.await_free()
    assert box.ask("recover", {}, Arm([])).value["how"] == "rolled back"
    box.await_free()
    assert box.serving() == ("old", "A = 'old'\n")
