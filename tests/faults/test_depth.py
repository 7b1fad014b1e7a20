"""Deploy on deploy, and back: the plans of the engine, run by the agent on a box without a server."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from specops.connect.base import OnEvent
from specops.engine.place import Place
from specops.engine.plan import Plan
from specops.engine.rollback import make_rollback
from specops.errors import Refused
from specops.remote import store
from specops.steps.server import Clocks

from .box import Box, sha, step, undo_swap
from .cuts import room
from .served import free_port

Json = Any
PLATFORM = {
    "machine_id": "m",
    "boot_id": "b",
    "hostname": "box",
    "user": "ops",
    "uid": 0,
    "home": "/",
    "python": "3.11",
}


class BoxConnector:
    """Requests to the real agent; only what needs a real install of SGLang is made up."""

    host = "box"

    def __init__(self, box: Box) -> None:
        self.box = box

    def call(
        self,
        verb: str,
        params: Mapping[str, Json],
        *,
        on_event: OnEvent | None = None,
        deadline_s: float | None = None,
    ) -> Json:
        if verb != "facts":
            return self.box.ask(verb, {**params, "instance": self.box.ref}).value
        return {
            "platform": PLATFORM,
            "install": {"python": "3.11", "root": str(self.box.root), "version": "0.5.18", "writable": True},
            "paths": {path: store.digest_file(path) for path in params["paths"]},
            "server": None,
            "port": {"free": True, "holder": None},
            "state": self.box.ask("status").value["state"],
        }

    def close(self) -> None: ...


@pytest.fixture
def box() -> Iterator[Box]:
    with room() as folder:
        yield Box(folder / "box", port=free_port())


def deploy(box: Box, name: str, **contents: bytes | None) -> None:
    """Gives files of the root these bytes, whatever they had."""
    files, blobs = [], {}
    for key, data in contents.items():
        path = box.root / f"{key}.py"
        files.append({"path": str(path), "before": store.digest_file(path), "after": sha(data)})
        if data is not None:
            blobs[str(sha(data))] = base64.b64encode(data).decode()
    backed = [{"path": f["path"], "sha256": f["before"]} for f in files if f["before"]]
    staged = [{"path": f["path"], "sha256": f["after"], "python": True} for f in files if f["after"]]
    steps = [
        step("back up", "backup", "files.backup", {"files": backed}),
        step("stage", "stage", "files.stage", {"files": staged}),
        step("swap", "swap", "files.swap", {"files": files}, undo_swap(files)),
    ]
    answer = box.ask("run", {"plan": box.plan(steps, id=name), "blobs": blobs})
    assert answer.value["how"] == "deployed"


def roll_back(box: Box, *, to: str | None = None, force: bool = False) -> Plan:
    place = Place(host="box", port=box.port, python="/usr/bin/python3", state=box.ref["state"], env={})
    connector = BoxConnector(box)
    clocks = Clocks(progress_s=10, cap_s=20)
    plan = make_rollback(place, connector, to=to, force=force, clocks=clocks, drain_s=0, term_s=1)
    answer = box.ask("run", {"plan": plan.as_wire(), "blobs": plan.blobs_as_wire()})
    assert answer.value["how"] == "deployed", answer.value
    return plan


def stack(box: Box) -> list[str]:
    return [str(name) for name in box.ask("history").value["stack"]]


def read(box: Box, name: str) -> bytes | None:
    path = Path(box.root / f"{name}.py")
    return path.read_bytes() if path.exists() else None


def test_one_rollback_for_each_deploy(box: Box) -> None:
    deploy(box, "A", a=b"A = 1\n", c=b"C = 1\n")
    deploy(box, "B", a=b"A = 2\n")
    roll_back(box)
    assert (read(box, "a"), read(box, "c"), stack(box)) == (b"A = 1\n", b"C = 1\n", ["A"])
    roll_back(box)
    assert (box.tree(), stack(box)) == (
        {"__init__.py": b"", "a.py": b"A = 'old'\n", "sub/b.py": b"B = 'old'\n"},
        [],
    )
    with pytest.raises(Refused, match="nothing to take back"):
        roll_back(box)


def test_several_deploys_in_one_plan(box: Box) -> None:
    deploy(box, "A", a=b"A = 1\n")
    deploy(box, "B", a=b"A = 2\n", c=b"C = 2\n")
    deploy(box, "C", a=b"A = 3\n", d=b"D = 3\n")
    with pytest.raises(Refused, match=r"no deploy Z is in force below C \(to go back to: B, A\)"):
        roll_back(box, to="Z")
    plan = roll_back(box, to="A")
    assert "C, B" in plan.notes[0]
    assert (read(box, "a"), read(box, "c"), read(box, "d")) == (b"A = 1\n", None, None)
    assert stack(box) == ["A"]


def test_a_file_that_drifted_in_between(box: Box) -> None:
    deploy(box, "A", a=b"A = 1\n", c=b"C = 1\n")
    (box.root / "a.py").write_bytes(b"A = 'mine'\n")
    with pytest.raises(Refused, match=r"a\.py") as caught:
        roll_back(box)
    assert isinstance(caught.value.detail, dict)
    assert "-A = 1\n+A = 'mine'\n" in caught.value.detail["diff"]
    assert "--force" in caught.value.next_command
    assert read(box, "a") == b"A = 'mine'\n"

    plan = roll_back(box, force=True)
    mine = str(sha(b"A = 'mine'\n"))
    assert mine in plan.notes[1]
    assert (read(box, "a"), read(box, "c")) == (b"A = 'old'\n", None)
    kept = box.instance.store / mine
    assert kept.read_bytes() == b"A = 'mine'\n"
    box.ask("clean", {"keep": 0})
    assert kept.exists(), "bytes from before a change are never counted out"
