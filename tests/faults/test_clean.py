"""`clean` bounds what deploys leave, and takes nothing that anybody may still need."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from specops.remote import clean, journal

from . import ops
from .box import Box, sha
from .cuts import room
from .served import free_port
from .test_depth import deploy, read, roll_back, stack
from .test_owed import failing, stuck

KEEP = 2


@pytest.fixture
def box() -> Iterator[Box]:
    with room() as folder:
        yield Box(folder / "box", port=free_port())


def grow_old(box: Box) -> None:
    """Nothing is young enough any more to be kept for its age alone."""
    then = time.time() - 2 * clean.YOUNG_S
    for path in (box.folder / "state").rglob("*"):
        os.utime(path, (then, then))


def stored(box: Box) -> set[str]:
    return {path.name for path in box.instance.store.iterdir() if len(path.name) == 64}


def source(number: int) -> bytes:
    return f"A = {number}\n".encode()


def test_many_deploys_later_there_is_as_much_as_after_a_few(box: Box) -> None:
    for number in range(6):
        deploy(box, f"up{number}", a=source(number), c=source(100 + number))
        leave_traces(box.deploy_dir(f"up{number}"))
        if number % 2:
            roll_back(box)
            roll_back(box)
    (box.instance.agents / f"{'0' * 64}.zip").write_bytes(b"an agent of long ago")
    grow_old(box)
    before = stored(box)
    told = box.ask("clean", {"keep": KEEP}).value
    left = {path.name for path in box.instance.deploys.iterdir()}
    assert len(left) == KEEP
    assert not left & set(told["removed"])
    pristine = {str(sha(b"A = 'old'\n"))}
    assert pristine <= stored(box)
    # Of two deploys, two files each, at most before and after.
    assert len(stored(box)) <= len(pristine) + 4 * KEEP < len(before)
    assert len(list(box.instance.agents.iterdir())) == 1
    assert not [path for path in (box.folder / "state").rglob("*.log") if path.parent.name not in left]
    box.ask("clean", {"keep": 0})
    assert stored(box) == pristine
    assert box.is_old()


def leave_traces(folder: Path) -> None:
    """What a real server, and a deploy that fails, would have left."""
    (folder / "server.log").write_bytes(b"x" * 10_000)
    (folder / "evidence").mkdir()
    (folder / "evidence" / "cause.json").write_text("{}")


def test_every_deploy_in_force_can_be_taken_back_afterwards(box: Box) -> None:
    for number in range(4):
        deploy(box, f"up{number}", a=source(number))
    grow_old(box)
    assert box.ask("clean", {"keep": 0}).value["removed"] == []
    for number in (2, 1, 0):
        roll_back(box)
        grow_old(box)
        box.ask("clean", {"keep": 0})
        assert (read(box, "a"), len(stack(box))) == (source(number), number + 1)
    roll_back(box)
    assert box.is_old()


def test_what_recover_needs_stays(box: Box) -> None:
    plan = box.plan([stuck(box, "stop"), *box.steps(), failing()], id="owed")
    value = box.run(plan, ops.add).value
    assert value["how"] == "rollback failed"
    grow_old(box)
    box.ask("clean", {"keep": 0})
    assert journal.replay_deploy(box.deploy_dir("owed")).owed
    (box.folder / "mended").touch()
    assert box.ask("recover", {}, ops.add).value["how"] == "rolled back"
    assert box.is_old()


def test_another_port_s_deploys_count_too(box: Box) -> None:
    """The store is the machine's: what one instance does not need, another may."""
    beside = Box(box.folder, port=box.port + 1)
    deploy(beside, "theirs", d=source(7))
    deploy(beside, "above", d=source(8))
    grow_old(box)
    box.ask("clean", {"keep": 0})
    assert {str(sha(source(7))), str(sha(source(8)))} <= stored(box)
    roll_back(beside)
    assert read(beside, "d") == source(7)


def test_bytes_that_somebody_else_wrote_stay_for_good(box: Box) -> None:
    mine = b"A = 'mine'\n"
    deploy(box, "A", a=source(1))
    (box.root / "a.py").write_bytes(mine)
    roll_back(box, force=True)
    deploy(box, "B", a=source(2))
    roll_back(box)
    grow_old(box)
    box.ask("clean", {"keep": 0})
    assert stored(box) == {str(sha(mine)), str(sha(b"A = 'old'\n"))}
