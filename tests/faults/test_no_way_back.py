"""A rollback that itself fails: exit 21, the cause and each undo that failed, what is true and what to do."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from rich.console import Console

from specops.engine.deploy import outcome_of
from specops.engine.outcome import exit_code
from specops.remote import files, journal
from specops.remote.context import Context
from specops.ui.outcome import show_outcome

from . import disks
from .box import OLD, sha
from .cuts import room
from .points import Arm
from .served import ServedBox


@pytest.fixture
def box() -> Iterator[ServedBox]:
    with room() as folder:
        made = ServedBox(folder / "box")
        yield made
        made.end()


def shown(value: Any, box: ServedBox) -> str:
    """What the operator reads, who is at exit code 21."""
    screen = io.StringIO()
    outcome = outcome_of(value, box.id)
    show_outcome(Console(file=screen, width=4000), outcome, "box")
    assert exit_code(outcome) == 21
    return screen.getvalue()


def before_judging(act: Callable[[], object]) -> Callable[[], None]:
    """In the process of the deploy: `act`, while its smoke test runs."""

    def arm() -> None:
        Arm([])()
        judge = files.OPS["files.judge"]

        def judge_after(ctx: Context, args: dict[str, Any]) -> Any:
            act()
            return judge(ctx, args)

        files.OPS["files.judge"] = judge_after

    return arm


def test_the_model_of_the_old_server_is_gone(box: ServedBox) -> None:
    model, away = box.folder / "models", box.folder / "away"

    value = box.run(box.deploy_plan("fail"), before_judging(lambda: model.rename(away))).value
    assert (value["how"], value["cause"]["message"]) == ("rollback failed", "S3 saw drafts above T")
    failure = value["failures"][0]
    assert (failure["step"], failure["code"], len(value["failures"])) == ("stop", "old_server_not_back", 1)
    assert failure["host_state"] == "its files are as before, but it does not serve"

    said = shown(value, box)
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


@pytest.mark.parametrize("name", ["sub/b.py", "c.py"], ids=["changed by the deploy", "added by it"])
def test_a_file_that_somebody_edits_while_the_smoke_test_runs(box: ServedBox, name: str) -> None:
    edit, target = b"MINE = 'an hour of work'\n", box.root / name
    value = box.run(box.deploy_plan("fail"), before_judging(lambda: target.write_bytes(edit))).value
    assert value["how"] == "rollback failed"
    assert target.read_bytes() == edit, "never written over unasked"
    kept = box.instance.store / str(sha(edit))
    assert kept.read_bytes() == edit
    said = shown(value, box)
    for words in (
        "S3 saw drafts above T",
        str(target),
        f"kept as {kept}",
        "specops recover --force --host box",
    ):
        assert words in said
    assert f"nothing serves on port {box.port}" in said
    assert box.tree()["a.py"] == b"A = 'old'\n", "the others are put back all the same"

    box.await_free()
    assert box.ask("recover", {}, Arm([])).value["how"] == "rollback failed", "nor by a second try"
    box.await_free()
    assert target.read_bytes() == edit
    done = box.ask("recover", {"force": True}, Arm([])).value
    assert (done["how"], done["cause"]["message"]) == ("rolled back", "S3 saw drafts above T")
    box.await_free()
    assert box.is_old()
    assert box.serving() == ("old", "A = 'old'\n")
    box.ask("clean", {"keep": 0})
    assert kept.read_bytes() == edit, "nor is it cleaned away"


def test_an_edit_that_cannot_be_kept_is_not_forced_away(box: ServedBox) -> None:
    """Only there: not even `--force` may lose it."""
    edit, target = b"MINE = 'an hour of work'\n", box.root / "sub/b.py"
    store = box.instance.store

    def edit_and_block() -> None:
        target.write_bytes(edit)
        (store / str(sha(edit))).mkdir()

    assert box.run(box.deploy_plan("fail"), before_judging(edit_and_block)).value["how"] == "rollback failed"
    box.await_free()
    value = box.ask("recover", {"force": True}, Arm([])).value
    assert value["how"] == "rollback failed"
    assert str(target) in shown(value, box)
    assert target.read_bytes() == edit
    box.await_free()
    (store / str(sha(edit))).rmdir()
    assert box.ask("recover", {"force": True}, Arm([])).value["how"] == "rolled back"
    box.await_free()
    assert (store / str(sha(edit))).read_bytes() == edit


def test_the_disk_is_full_while_the_files_are_put_back() -> None:
    """Every undo that failed is named, and with room again `recover` ends it."""
    disks.require_root()
    with room() as folder:
        # Larger than what the undo itself frees: it removes what the deploy added.
        long = {**OLD, "sub/b.py": b"B = 'old'\n" + b"#" * 400_000}
        box = ServedBox(folder / "box", before=long, disk="sglang")
        try:
            value = box.run(box.deploy_plan("fail"), before_judging(lambda: disks.fill(box.root))).value
            assert value["how"] == "rollback failed"
            failed = [(failure["step"], failure["code"]) for failure in value["failures"]]
            assert failed == [("second", "no_space"), ("stop", "not_tried")]
            said = shown(value, box)
            for words in ("S3 saw drafts above T", "No space left on device", str(box.root / "sub/b.py")):
                assert words in said
            assert f"nothing serves on port {box.port}" in said
            assert (box.deploy_dir(box.id) / "evidence" / "cause.json").exists()
            box.await_free()
            disks.free(box.root)
            assert box.ask("recover", {}, Arm([])).value["how"] == "rolled back"
            box.await_free()
            assert box.is_old()
            assert box.serving() == ("old", "A = 'old'\n")
        finally:
            box.end()


@pytest.mark.parametrize(("verdict", "accepted"), [("pass", False), ("pass", True), ("fail", True)])
def test_an_old_server_that_could_not_be_started_again(box: ServedBox, verdict: str, accepted: bool) -> None:
    """It is stopped only where that was accepted, and then a deploy that fails leaves nothing serving."""
    (box.folder / "models").rename(box.folder / "away")
    server = box.ask("facts").value["server"]
    assert "its model folder is gone" in server["no_restore"]
    plan = box.deploy_plan(verdict)
    if accepted:
        step = next(step for step in plan["steps"] if step["name"] == "capture")
        step["do"]["args"]["accept_no_restore"] = True
    value = box.run(plan, Arm([])).value
    box.await_free()
    if not accepted:
        assert (value["how"], value["cause"]["id"]) == ("refused", "cannot_restore")
        assert box.is_old()
        assert box.serving() == ("old", "A = 'old'\n")
    elif verdict == "pass":
        assert value["how"] == "deployed"
        assert box.is_new()
        assert box.serving() == ("new", "A = 'new'\n")
    else:
        assert (value["how"], value["failures"]) == ("rolled back", [])
        assert f"nothing serves on port {box.port}, as was accepted" in value["serving"]["line"]
        assert "its model folder is gone" in value["serving"]["line"]
        assert box.is_old()
        assert box.servers() == {}
    assert box.leftovers() == []
