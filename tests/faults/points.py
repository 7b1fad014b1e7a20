"""Points of a deploy at which it can be halted: every journal entry, and what happens inside an operation.

A point's name is stable from run to run: `starting stop`, `undone launch`, or for an act its kind and number,
`write 3`. The process that comes to the wanted point says so in a file and waits, or goes on if it may live.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from specops.remote import (
    executor,
    follow,
    journal,
    launch,
    procs,
    ready,
    replace,
    settle,
    state,
    stop,
    store,
)

from . import ops

Json = Any
When = Literal["before", "torn", "after", "during", "at its end"]
"""`after` an entry: it is durable, and whoever wrote it does not know yet. `during` and `at its end`:
of an upload, which only links.py cuts."""
HALT_S = 120.0
BYSTANDERS: set[int] = set()
"""Processes from before a batch of cuts: no box is theirs, and looking into each costs most of the time."""
TORN = b'{"seq": 3, "entry": "do'


@dataclass(frozen=True)
class Halt:
    """One halt of one box; a second one is armed in the same processes by another number."""

    folder: Path
    point: str
    when: When
    number: int = 1

    @property
    def told(self) -> Path:
        """Written by the process that halted: {"pid", "ppid"}."""
        return self.folder / f"halted-{self.number}"

    @property
    def go(self) -> Path:
        return self.folder / f"go-{self.number}"

    def reached(self) -> dict[str, int] | None:
        try:
            found: dict[str, int] = json.loads(self.told.read_text())
        except (OSError, ValueError):
            return None
        return found

    def wait(self) -> None:
        temp = self.told.with_suffix(".new")
        temp.write_text(json.dumps({"pid": os.getpid(), "ppid": os.getppid()}))
        temp.rename(self.told)
        end = time.monotonic() + HALT_S
        while not self.go.exists():
            if time.monotonic() > end:
                os._exit(99)
            time.sleep(0.005)


class Arm:
    """Puts the hooks into the process that becomes controller's end, guardian and agent."""

    def __init__(self, halts: list[Halt], seen: Path | None = None) -> None:
        self._halts = halts
        self._seen = seen
        """Where to note every point that is passed, for the table."""
        self._counts: dict[str, int] = {}

    def __call__(self) -> None:
        ops.add()
        settle.RETRY_PAUSE_S = 0.05
        stop.POLL_S = ready.POLL_S = 0.05
        ready.PROBE_PAUSE_S = 0.1
        executor.EVIDENCE_S = 60.0
        follow.HOLDER_CHECK_S = 0.2
        patched: Any = procs
        patched.scan_processes = scan_newcomers
        self._hook_journal()
        self._hook_writes()
        self._hook_acts()

    def at(self, point: str, when: When, torn: Callable[[], object] = lambda: None) -> None:
        if self._seen is not None:
            with open(self._seen, "a") as file:
                file.write(f"{point}\t{when}\n")
        for halt in self._halts:
            if halt.point == point and not halt.told.exists():
                if when == "before" and halt.when == "torn":
                    torn()
                    halt.wait()
                elif halt.when == when:
                    halt.wait()

    def count(self, kind: str) -> str:
        self._counts[kind] = self._counts.get(kind, 0) + 1
        return f"{kind} {self._counts[kind]}"

    def _hook_journal(self) -> None:
        append = journal.Journal.append
        arm = self

        def halting(self_: journal.Journal, entry: dict[str, Json]) -> dict[str, Json]:
            point = name_of(self_.path.parent, entry)

            def tear() -> None:
                with open(self_.path, "ab") as file:
                    file.write(TORN)

            arm.at(point, "before", tear)
            whole = append(self_, entry)
            arm.at(point, "after")
            return whole

        patched: Any = journal.Journal
        patched.append = halting

    def _hook_writes(self) -> None:
        write, remove, put = replace.write, replace.remove, store.Store.put

        def halting_write(target: Path, data: bytes, mark: str) -> None:
            point = self.count("write")
            temp = replace.temp_of(target, mark)
            self.at(point, "before", lambda: temp.write_bytes(data[:3]))
            write(target, data, mark)
            self.at(point, "after")

        def halting_remove(target: Path) -> None:
            point = self.count("remove")
            self.at(point, "before")
            remove(target)
            self.at(point, "after")

        def halting_put(self_: store.Store, data: bytes, expected: str) -> None:
            point = self.count("store")
            half = self_.folder / f".{expected}.{os.getpid()}"
            self.at(point, "before", lambda: half.parent.is_dir() and half.write_bytes(data[:3]))
            put(self_, data, expected)
            self.at(point, "after")

        replace.write, replace.remove = halting_write, halting_remove
        patched: Any = store.Store
        patched.put = halting_put

    def _hook_acts(self) -> None:
        """A signal to a server, and the moment between its start and the note of it."""
        send, note, put_private = stop._signal, launch._note, state.write_private
        modules: Any = (stop, launch, state)

        def halting_signal(keys: set[tuple[int, int]], number: Any) -> None:
            point = self.count("signal")
            self.at(point, "before")
            send(keys, number)
            self.at(point, "after")

        def halting_note(start: launch.Start, pid: int, path: Path) -> dict[str, Json]:
            point = self.count("started")
            self.at(point, "before")
            facts = note(start, pid, path)
            self.at(point, "after")
            return facts

        def halting_put(path: Path, data: bytes) -> None:
            if path.name not in ("vault.json", stop.MARK):
                return put_private(path, data)
            point = self.count(path.name)
            half = path.with_name(f".{path.name}.{os.getpid()}")
            self.at(point, "before", lambda: half.write_bytes(data[:3]))
            put_private(path, data)
            self.at(point, "after")

        modules[0]._signal, modules[1]._note, modules[2].write_private = (
            halting_signal,
            halting_note,
            halting_put,
        )


def note_bystanders() -> None:
    BYSTANDERS.clear()
    BYSTANDERS.update(int(name) for name in os.listdir("/proc") if name.isdigit())


def scan_newcomers() -> dict[int, procs.Process]:
    """As `procs.scan_processes`, without the bystanders."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    found = (procs.read_process(pid) for pid in pids if pid not in BYSTANDERS)
    return {process.pid: process for process in found if process}


def name_of(deploy_dir: Path, entry: dict[str, Json]) -> str:
    """`starting stop`, `closed`: the entry's kind and, where it has an index, the step's name."""
    kind = str(entry["entry"])
    if "index" not in entry or kind == "failed":
        return kind
    plan = state.read_json(deploy_dir / "plan.json") or {}
    return f"{kind} {plan['steps'][int(entry['index'])]['name']}"
