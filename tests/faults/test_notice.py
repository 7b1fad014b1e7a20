"""An unfinished deploy in somebody else's state folder is seen by all, and nobody can be fooled by a note."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specops.facts.state import parse_state
from specops.remote import journal, lock, notice, state

from . import disks, ops
from .box import Box, step
from .cuts import guardian_pid, room
from .test_deaths import until

Json = Any


@pytest.fixture
def box() -> Iterator[Box]:
    with room() as folder:
        yield Box(folder / "box")


def others(box: Box) -> Any:
    return box.ask("status").value["state"]["others"]


@pytest.mark.parametrize("uid", [0, disks.SOMEBODY])
def test_another_state_folder_s_deploy_is_seen_until_it_is_ended(box: Box, uid: int) -> None:
    if uid and os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    theirs = Box(box.folder)
    ref = {**box.ref, "state": str(box.folder / "theirs")}
    for path in (theirs.folder, *theirs.folder.rglob("*")):
        os.chown(path, uid or os.geteuid(), uid or os.getegid())
    wait = step("await ready", "ready", "files.wait", {"until": str(box.folder / "release")})
    plan = theirs.plan([*theirs.steps(), wait], instance=ref)
    params = {**ref, "plan": plan, "blobs": theirs.blobs()}
    pid, out = theirs.start("run", params, disks.dropping(uid, ops.add))
    theirs_dir = Path(ref["state"]) / state.machine_id() / "instances" / box.instance.key / "deploys/d1"
    until(lambda: journal.replay_deploy(theirs_dir).in_step() == "await ready")
    assert others(box) == [], "while it runs, the lock says so"
    owner = lock.read_owner(box.instance)
    assert owner
    os.kill(guardian_pid(box), signal.SIGKILL)
    os.kill(owner["pid"], signal.SIGKILL)
    theirs.finish(pid, out)

    seen = others(box)
    assert [(note["uid"], note["deploy"], note["port"]) for note in seen] == [
        (uid or os.geteuid(), "d1", box.port)
    ]
    line = parse_state(box.ask("status").value["state"]).others[0].line
    who = state.user_name(uid or os.geteuid())
    for words in ("deploy d1", f"by {who}", str(box.port), "never ended", str(theirs_dir)):
        assert words in line
    beside = Box(box.folder, port=box.port + 1)
    assert len(others(beside)) == 1, "it is the same install"
    done = theirs.ask("recover", ref, disks.dropping(uid, ops.add))
    assert done.value["how"] == "rolled back"
    assert others(box) == []
    assert list(notice.BOARD.iterdir()) == []


def write(into: Path, box: Box, changes: dict[str, Json]) -> Path:
    into.mkdir(exist_ok=True)
    note = {"machine": state.machine_id(), "port": box.port, "deploy": "dx", "folder": "/home/eve/state"}
    path = into / f"{box.instance.key}-dx.json"
    path.write_text(json.dumps({**note, "since": 1.0, **changes}))
    return path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can write in another user's name")
def test_a_note_that_is_not_its_folder_s_owner_s_is_not_read(box: Box) -> None:
    eve = notice.BOARD / "specops-54321"
    path = write(eve, box, {})
    for made in (eve, path):
        os.chown(made, 54321, 54321)
    assert [(note["user"], note["deploy"]) for note in others(box)] == [("54321", "dx")]

    assert lists_nothing(box, lambda: os.chown(path, 0, 0), lambda: os.chown(path, 54321, 54321))
    assert lists_nothing(box, lambda: os.chown(eve, 54322, 0), lambda: os.chown(eve, 54321, 0))
    assert lists_nothing(box, lambda: eve.chmod(0o777), lambda: eve.chmod(0o755))
    away = notice.BOARD / "away"
    eve.rename(away)
    eve.symlink_to(away)
    assert others(box) == []
    eve.unlink()
    away.rename(eve)
    real = path.rename(notice.BOARD / "real")
    path.symlink_to(real)
    os.chown(path, 54321, 54321, follow_symlinks=False)
    assert others(box) == []
    path.unlink()
    os.mkfifo(path)
    os.chown(path, 54321, 54321)
    assert others(box) == [], "nor does a pipe make anybody wait"


def lists_nothing(box: Box, spoil: Any, mend: Any) -> bool:
    spoil()
    nothing = others(box) == []
    mend()
    return nothing and len(others(box)) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"folder": "/home/eve/\x1b[2Jstate"},
        {"folder": "relative"},
        {"deploy": "dx\nall is well"},
        {"deploy": "../../etc"},
        {"port": "http"},
        {"port": 0},
        {"since": "yesterday"},
        {"machine": "another"},
        {"folder": "/" + "x" * 5000},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_a_note_may_say(box: Box, changes: dict[str, Json]) -> None:
    notice.BOARD.chmod(0o755)
    path = write(notice.BOARD / f"specops-{os.geteuid()}", box, changes)
    assert notice.read(box.instance) == []
    path.write_text("[]")
    assert notice.read(box.instance) == []


def test_a_place_that_somebody_took_is_left_alone(box: Box) -> None:
    """The deploy goes on without a note, and writes nothing where a link leads."""
    target = box.folder / "target"
    target.mkdir()
    (notice.BOARD / f"specops-{os.geteuid()}").symlink_to(target)
    assert box.run().value["how"] == "deployed"
    assert list(target.iterdir()) == []


def test_notes_of_writers_that_died_too_early_go_with_the_next_request(box: Box) -> None:
    assert box.run().value["how"] == "deployed"
    for deploy in ("d1", "d2"):
        notice.put(box.instance, deploy)
    assert len(notice.read(box.instance)) == 2
    assert others(box) == []
    assert box.ask("recover").value["how"] == "nothing to recover"
    assert notice.read(box.instance) == []


def test_a_note_says_no_more_than_the_lock(box: Box) -> None:
    notice.put(box.instance, "d1")
    (path,) = (notice.BOARD / f"specops-{os.geteuid()}").iterdir()
    assert set(json.loads(path.read_text())) == {"machine", "port", "deploy", "folder", "since"}
    assert path.stat().st_mode & 0o777 == 0o644
    notice.drop(box.instance, "d1")
    assert list(notice.BOARD.iterdir()) == []
