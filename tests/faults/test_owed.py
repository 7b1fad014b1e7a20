"""Undos that fail, verdicts that are kept, deploys that are taken back: what is owed and what is in force."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from specops.remote import files, journal, settle
from specops.remote.context import Context, OpFailed

from . import ops
from .box import Box, sha, step
from .cuts import room


@pytest.fixture
def box() -> Iterator[Box]:
    with room() as folder:
        yield Box(folder / "box")


def add_without_pause() -> None:
    settle.RETRY_PAUSE_S = 0.0
    ops.add()


def stuck(box: Box, name: str) -> dict[str, object]:
    undo = {"op": "files.refuse_until", "args": {"until": str(box.folder / "mended")}}
    return step(name, "stop", "files.check", {"files": []}, undo)


def failing() -> dict[str, object]:
    return step("smoke", "smoke", "files.judge", {"verdict": "fail", "summary": "S3 saw drafts above T"})


def test_a_failed_undo_hides_no_other_and_stays_owed(box: Box) -> None:
    plan = box.plan([stuck(box, "stop"), *box.steps(), failing()])
    value = box.run(plan, add_without_pause).value
    assert value["how"] == "rollback failed"
    assert value["cause"]["message"] == "S3 saw drafts above T"
    assert [(f["step"], f["code"]) for f in value["failures"]] == [("stop", "stuck")]
    assert box.is_old(), "the undos after the failed one ran all the same"
    assert box.run(box.plan(id="d2")).error["code"] == "unfinished"

    again = box.ask("recover", {}, add_without_pause)
    assert again.value["how"] == "rollback failed"
    (box.folder / "mended").touch()
    recovered = box.ask("recover", {}, add_without_pause)
    assert recovered.value["how"] == "rolled back"
    assert recovered.value["cause"]["message"] == "S3 saw drafts above T"
    assert recovered.value["serving"] == {"line": "the old server"}
    assert [e["entry"]["entry"] for e in recovered.events] == [
        "settling",
        "settling",
        "undoing",
        "undone",
        "closed",
    ]
    assert box.ask("history").value["deploys"][0]["how"] == "rolled back"


def test_an_undo_that_fails_once_is_tried_again(box: Box) -> None:
    plan = box.plan([stuck(box, "stop"), *box.steps(), failing()])

    def add() -> None:
        add_without_pause()
        refuse = files.OPS["files.refuse_until"]

        def refuse_once(ctx: Context, args: dict[str, Any]) -> Any:
            try:
                return refuse(ctx, args)
            finally:
                (box.folder / "mended").touch()

        files.OPS["files.refuse_until"] = refuse_once

    value = box.run(plan, add).value
    assert (value["how"], value["failures"]) == ("rolled back", [])
    assert value["serving"] == {"line": "the old server"}


def test_bytes_that_rotted_in_the_store_are_never_put_back(box: Box) -> None:
    def add() -> None:
        add_without_pause()

        def rot(ctx: Context, args: dict[str, Any]) -> None:
            (ctx.store_dir / str(sha(box.before["sub/b.py"]))).write_bytes(b"B = 'rotten'\n")
            raise OpFailed("late", "no token within the cap")

        files.OPS["files.rot"] = rot

    value = box.run(box.plan([*box.steps(), step("ready", "ready", "files.rot", {})]), add).value
    assert (value["how"], value["failures"][0]["code"]) == ("rollback failed", "backup_damaged")
    assert (box.root / "sub/b.py").read_bytes() == box.after["sub/b.py"], (
        "better known bytes than unknown ones"
    )
    assert (box.root / "a.py").read_bytes() == box.before["a.py"]


def test_a_file_that_changed_after_the_check_is_not_written_over(box: Box) -> None:
    def add() -> None:
        add_without_pause()

        def meddle(ctx: Context, args: object) -> None:
            (box.root / "sub/b.py").write_bytes(b"B = 'mine'\n")

        files.OPS["files.meddle"] = meddle

    steps = box.steps()
    value = box.run(box.plan([*steps[:3], step("late", "stage", "files.meddle", {}), *steps[3:]]), add).value
    assert (value["how"], value["cause"]["id"]) == ("rollback failed", "drifted")
    assert (box.root / "sub/b.py").read_bytes() == b"B = 'mine'\n"
    assert (box.root / "a.py").read_bytes() == box.before["a.py"]


def test_the_old_server_is_not_started_on_files_that_could_not_be_put_back(box: Box) -> None:
    def add() -> None:
        add_without_pause()
        settle.NEEDS_ALL_BEFORE = frozenset({"files.refuse_until"})

    (box.folder / "mended").touch()
    meddle = step(
        "meddle", "ready", "files.check", {"files": [{"path": str(box.root / "x"), "sha256": "0" * 64}]}
    )
    steps = [stuck(box, "stop"), *box.steps(), meddle]
    steps[-1]["do"] = {"op": "files.meddle", "args": {}}

    def add_meddler() -> None:
        add()

        def meddle_with(ctx: Context, args: object) -> None:
            (box.root / "a.py").write_bytes(b"A = 'mine'\n")
            raise OpFailed("late", "no token within the cap")

        files.OPS["files.meddle"] = meddle_with

    value = box.run(box.plan(steps), add_meddler).value
    assert value["how"] == "rollback failed"
    codes = {f["step"]: f["code"] for f in value["failures"]}
    assert codes == {"second": "drifted", "first": "drifted", "stop": "not_tried"}
    assert (box.root / "a.py").read_bytes() == b"A = 'mine'\n", "what somebody else wrote is left alone"
    assert (box.root / "sub/b.py").read_bytes() == b"B = 'old'\n"


def test_kept_without_a_verdict_or_taken_back_by_policy(box: Box) -> None:
    policy = {"boundary": "roll_back", "others": "keep"}
    smoke = step("smoke", "smoke", "files.judge", {"verdict": "inconclusive", "on_inconclusive": policy})
    value = box.run(box.plan([*box.steps(), smoke]), ops.add).value
    assert (value["how"], value["inconclusive"]) == ("inconclusive", ["S4"])
    assert box.is_new()
    assert box.ask("status").value["state"]["current"]["id"] == "d1"

    smoke["do"]["args"]["id"] = "S2"
    back = box.plan([*box.steps(back=True), smoke], id="d2")
    value = box.run(back, ops.add).value
    assert (value["how"], value["cause"]["id"]) == ("rolled back", "inconclusive")
    assert box.is_new()


def test_deploy_deploy_rollback_rollback(box: Box) -> None:
    nothing = [step("check", "check", "files.check", {"files": []})]

    def in_force() -> list[str]:
        return [str(x) for x in box.ask("history").value["stack"]]

    assert box.run(box.plan(id="A")).value["how"] == "deployed"
    assert box.run(box.plan(nothing, id="B")).value["how"] == "deployed"
    assert in_force() == ["B", "A"]
    assert (
        box.run(box.plan(nothing, id="C", kind="rollback", summary={"reverts": "B"})).value["how"]
        == "deployed"
    )
    assert in_force() == ["A"]
    current = box.ask("status").value["state"]["current"]
    assert {f["path"]: (f["before"], f["after"]) for f in current["files"]} == {
        f["path"]: (f["before"], f["after"]) for f in box.changes()
    }
    back = box.plan(box.steps(back=True), id="D", kind="rollback", summary={"reverts": "A"})
    assert box.run(back, blobs={}).value["how"] == "deployed", "the bytes from before are in the store"
    assert in_force() == []
    assert box.is_old()


def test_secrets_reach_the_operations_and_nothing_that_leaves(box: Box) -> None:
    def add() -> None:
        ops.add()

        def leak(ctx: Context, args: object) -> dict[str, str]:
            key = ctx.secrets["api_key"]
            ctx.emit({"event": "note", "message": f"--api-key {key}"})
            raise OpFailed("late", f"server said {key}", detail={"log": [key]})

        files.OPS["files.leak"] = leak

    key = "sk-very-secret-0123"
    answer = box.run(box.plan([step("leak", "launch", "files.leak", {})]), add, secrets={"api_key": key})
    assert answer.value["cause"]["message"] == "server said [redacted]"
    assert not any(key in str(event) for event in answer.events)
    written = [
        p for p in (box.folder / "state").rglob("*") if p.is_file() and key in p.read_text(errors="replace")
    ]
    assert written == [], "closed as refused, so the vault went too"


def test_a_clean_keeps_what_is_in_force_and_every_backup(box: Box) -> None:
    box.run()
    bad = step("no", "check", "files.check", {"files": [{"path": str(box.root / "a.py"), "sha256": None}]})
    for name in ("x1", "x2", "x3"):
        assert box.run(box.plan([bad], id=name)).value["how"] == "refused"
    trial = box.ask("clean", {"keep": 1, "dry_run": True}).value
    done = box.ask("clean", {"keep": 1}).value
    assert trial["removed"] == done["removed"] == ["x1", "x2"]
    assert [d["id"] for d in box.ask("history").value["deploys"]] == ["x3", "d1"]
    back = box.plan(box.steps(back=True), id="D", kind="rollback", summary={"reverts": "d1"})
    assert box.run(back, blobs={}).value["how"] == "deployed"
    assert box.is_old()


def test_a_dead_boot_is_told_apart(box: Box) -> None:
    folder = box.deploy_dir()
    folder.mkdir(parents=True)
    start = journal.Journal(folder)
    start.append({"entry": "opened", "plan_id": "d1", "kind": "deploy", "steps": 1, "boot_id": "another"})
    value = box.ask("recover").value
    assert (value["how"], value["cause"]["id"]) == ("refused", "rebooted")
