"""Kill the agent at a chosen point of a deploy, once; then see how it ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from specops.remote import executor, follow, journal, lock, replace

from .box import Box

Json = Any
When = Literal["before", "torn", "after"]
By = Literal["agent", "agent and guardian"]


@dataclass(frozen=True, kw_only=True)
class Cut:
    """SIGKILL at the `at`-th journal entry, or at the `at`-th rename into the install."""

    what: Literal["entry", "rename"]
    at: int
    when: When
    by: By

    @property
    def alone(self) -> bool:
        """Nobody is left to settle it: the first entry is written before there is a guardian."""
        return self.by == "agent and guardian" or (self.what == "entry" and self.at == 1)

    def arm(self, fired: Path) -> None:
        """In the process that becomes controller's end, guardian and agent."""
        follow.HOLDER_CHECK_S = 0.1
        executor.EVIDENCE_S = 0.1
        if self.what == "entry":
            self._arm_journal(fired)
        else:
            self._arm_rename(fired)

    def _arm_journal(self, fired: Path) -> None:
        append = journal.Journal.append

        def cut_append(self_: journal.Journal, entry: dict[str, Json]) -> dict[str, Json]:
            mine = self_._seq + 1 == self.at and not fired.exists()
            if mine and self.when == "torn":
                with open(self_.path, "ab") as file:
                    file.write(b'{"seq": 3, "entry": "do')
            if mine and self.when != "after":
                self.die(fired)
            whole = append(self_, entry)
            if mine:
                self.die(fired)
            return whole

        patched: Any = journal.Journal
        patched.append = cut_append

    def _arm_rename(self, fired: Path) -> None:
        write: Callable[[Path, bytes, str], None] = replace.write
        seen = [0]

        def cut_write(target: Path, data: bytes, mark: str) -> None:
            seen[0] += 1
            if seen[0] == self.at and not fired.exists():
                if self.when == "torn":
                    replace.temp_of(target, mark).write_bytes(data[:3])
                if self.when == "after":
                    write(target, data, mark)
                self.die(fired)
            write(target, data, mark)

        replace.write = cut_write

    def die(self, fired: Path) -> None:
        fired.touch()
        if self.by == "agent and guardian" and not (self.what == "entry" and self.at == 1):
            os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def run_all(cuts: list[tuple[Cut, Box, dict[str, Json]]]) -> list[tuple[Cut, Box]]:
    """Every cut at once, each on an install of its own; those that nobody settled are recovered."""
    running = []
    for cut, box, plan in cuts:
        fired = box.folder / "fired"
        params = {"plan": plan, "blobs": box.blobs()}
        running.append((cut, box, box.start("run", params, lambda c=cut, f=fired: c.arm(f))))  # type: ignore[misc]
    for cut, box, started in running:
        answer = box.finish(*started)
        box.await_free()
        assert (box.folder / "fired").exists(), f"{cut} was never reached"
        if answer.result is None or not answer.result["ok"]:
            assert cut.alone, f"{cut}: its guardian did not settle it"
            recovered = box.ask("recover")
            assert recovered.value["how"], cut
            box.await_free()
    return [(cut, box) for cut, box, _ in running]


def guardian_pid(box: Box) -> int:
    """Of a running deploy: the parent of the agent that the lock names."""
    owner = lock.read_owner(box.instance)
    assert owner
    stat = Path(f"/proc/{owner['pid']}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])
