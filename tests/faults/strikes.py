"""What cuts: what is done to a deploy that is halted at a point, and who is left to settle it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from specops.remote import procs, state

from .points import Arm, Halt
from .served import ServedBox

Json = Any


@dataclass
class Struck:
    """One deploy under way, as a strike finds it."""

    box: ServedBox
    halt: Halt
    front: int
    """The controller's end on the host: it started the deploy and follows it."""
    out: int | None
    """Its output, as the controller reads it; None once the connection is cut."""
    said: list[dict[str, Json]] = field(default_factory=list)
    """Results of other requests made while it was halted."""

    @property
    def pid(self) -> int:
        """Who is halted: agent or guardian; the controller's end before there is a guardian."""
        found = self.halt.reached()
        assert found
        return found["pid"]

    @property
    def guardian(self) -> int | None:
        """Its parent, where that is a guardian."""
        found = self.halt.reached()
        assert found
        return (
            None if self.pid == self.front or found["ppid"] in (self.front, 1, os.getpid()) else found["ppid"]
        )

    def ask(self, verb: str, **params: Json) -> dict[str, Json]:
        """Another controller's request, by its raw result."""
        answer = self.box.ask(verb, params, Arm([]))
        assert answer.result is not None
        self.said.append(answer.result)
        return answer.result


@dataclass(frozen=True)
class Strike:
    act: Callable[[Struck], object]
    kills: bool = False
    """Whoever was halted is dead, so that the deploy ends by what is durable."""
    alone: bool = False
    """Nobody is left to settle it."""
    same_boot: bool = True


def kill(*pids: int | None) -> None:
    for pid in pids:
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def kill_both(struck: Struck) -> None:
    # The guardian first: it must not see the agent die.
    kill(struck.guardian, struck.pid)


def reboot(struck: Struck) -> None:
    kill_both(struck)
    kill(struck.front, *struck.box.servers())


def cut_connection(struck: Struck) -> None:
    assert struck.out is not None
    os.close(struck.out)
    struck.out = None


def kill_servers(name: str) -> Callable[[Struck], None]:
    def act(struck: Struck) -> None:
        pids = [pid for pid, which in struck.box.servers().items() if which == name]
        kill(*pids)
        for pid in pids:
            while (process := procs.read_process(pid)) is not None and process.living:
                pass

    return act


def deploy_twice_more(struck: Struck) -> None:
    for name in ("second", "third"):
        plan = {**struck.box.deploy_plan(), "id": f"{struck.box.id}-{name}"}
        struck.ask("run", plan=plan, blobs=struck.box.blobs())
        assert not struck.box.deploy_dir(plan["id"]).exists(), "a refused deploy left a folder"


def another_boot() -> None:
    """In the process of a request, as after a reboot."""
    patched: Any = state
    patched.boot_id = lambda: "another-boot"


STRIKES = {
    "agent killed": Strike(lambda s: kill(s.pid), kills=True),
    "agent and guardian killed": Strike(kill_both, kills=True, alone=True),
    "reboot": Strike(reboot, kills=True, alone=True, same_boot=False),
    "controller killed": Strike(lambda s: kill(s.front)),
    "connection cut": Strike(cut_connection),
    "lock break": Strike(lambda s: s.ask("lock_break", reason="lunch")),
    "lock break --force": Strike(lambda s: s.ask("lock_break", reason="hangs", force=True), kills=True),
    "two more deploys": Strike(deploy_twice_more),
    "old server killed": Strike(kill_servers("old")),
    "new server killed": Strike(kill_servers("new")),
}
