"""Written down before it happens, on disk before it counts: the order of system calls of a deploy."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from specops.remote import stop

from .cuts import make_plan, room
from .points import Arm
from .served import ServedBox


class Recorder:
    """Notes writes, syncs and acts of every process of a request, in their order."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def note(self, *words: object) -> None:
        with open(self._log, "a") as file:
            file.write("\t".join(str(word) for word in words) + "\n")

    def __call__(self) -> None:
        Arm([])()
        patched: tuple[Any, Any, Any] = (os, subprocess, stop)
        write, sync, rename, unlink = os.write, os.fsync, os.replace, os.unlink
        start, send = subprocess.Popen.__init__, stop._signal

        def named(fd: int) -> str:
            return os.readlink(f"/proc/self/fd/{fd}")

        def noting_write(fd: int, data: bytes) -> int:
            if named(fd).endswith("journal.jsonl"):
                self.note("write", named(fd))
            return write(fd, data)

        def noting_sync(fd: int) -> None:
            sync(fd)
            self.note("sync", named(fd))

        def noting_rename(source: Any, target: Any) -> None:
            self.note("rename", target, source)
            rename(source, target)

        def noting_unlink(path: Any, **more: Any) -> None:
            unlink(path, **more)
            self.note("unlink", path)

        def noting_start(self_: Any, argv: Any, *rest: Any, **more: Any) -> None:
            self.note("start", argv[-1])
            start(self_, argv, *rest, **more)

        def noting_signal(keys: Any, number: Any) -> None:
            self.note("signal", number)
            send(keys, number)

        patched[0].write, patched[0].fsync = noting_write, noting_sync
        patched[0].replace, patched[0].unlink = noting_rename, noting_unlink
        patched[1].Popen.__init__, patched[2]._signal = noting_start, noting_signal


@dataclass(frozen=True)
class Order:
    root: Path
    lines: list[list[str]]

    def is_act(self, words: list[str]) -> bool:
        """Something that a user of the host can see."""
        inside = words[0] in ("rename", "unlink") and words[1].startswith(str(self.root))
        return inside or words[0] in ("signal", "start")


@pytest.fixture(scope="module")
def order() -> Iterator[Order]:
    """Of a deploy that fails in its last step."""
    with room() as folder:
        box = ServedBox(folder / "box")
        try:
            log = box.folder / "order"
            assert box.run(make_plan(box, "deploy that fails"), Recorder(log)).value["how"] == "rolled back"
            box.await_free()
            yield Order(box.root, [line.split("\t") for line in log.read_text().splitlines()])
        finally:
            box.end()


def test_every_act_comes_after_the_sync_of_its_entry(order: Order) -> None:
    unsynced, acts, wrong = False, 0, []
    for words in order.lines:
        if words[1].endswith("journal.jsonl"):
            unsynced = words[0] == "write"
        elif order.is_act(words):
            acts += 1
            if unsynced:
                wrong.append(words)
    assert wrong == []
    assert acts > 12


def test_what_takes_a_place_is_on_disk_before_and_its_folder_after(order: Order) -> None:
    renames = [number for number, words in enumerate(order.lines) if words[0] == "rename"]
    for number in renames:
        _, target, source = order.lines[number]
        assert ["sync", source] in order.lines[:number], f"{target} became bytes that a power cut takes"
        assert order.lines[number + 1] == ["sync", str(Path(target).parent)], f"{target} may go back"
    assert len(renames) > 12


def test_removing_is_on_disk_before_the_journal_says_so(order: Order) -> None:
    added = str(order.root / "c.py")
    gone = [n for n, words in enumerate(order.lines) if words == ["unlink", added]]
    assert len(gone) == 1
    assert order.lines[gone[0] + 1] == ["sync", str(order.root)]
