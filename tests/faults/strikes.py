"""What cuts: what is done to a deploy that is halted at a point, and who is left to settle it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specops.remote import procs, state

from . import disks
from .points import Arm, Halt
from .served import ServedBox

Json = Any
INSTALL, STATE = "sglang", "state"


@dataclass
class Struck:
    """One deploy under way, as a strike finds it."""

    box: ServedBox
    halt: Halt
    deploy: str = ""
    front: int = 0
    """The controller's end on the host: it started the deploy and follows it."""
    out: int | None = None
    """Its output, as the controller reads it; None once the connection is cut."""
    stranger: subprocess.Popen[bytes] | None = None
    """After a reboot: it has the pid of a server of before."""
    kept: dict[Path, os.stat_result] = field(default_factory=dict)
    """Modes and owners of folders before they were forbidden."""
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
    disk: str = ""
    """The folder of the box that lies on a small disk of its own."""
    unprivileged: bool = False
    mend: Callable[[Struck], object] | None = None
    """What a person does before `recover`. Until then a rollback may have failed."""


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
    for note in struck.box.deploy_dir(struck.deploy).glob("*server.json"):
        if struck.stranger is None:
            struck.stranger = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
        process = procs.read_process(struck.stranger.pid)
        assert process
        known = {**json.loads(note.read_text()), "pid": process.pid, "start_ticks": process.start_ticks}
        note.write_text(json.dumps(known))


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


def on(disk: str, act: Callable[[Path], object], mend: Callable[[Path], object]) -> Strike:
    return Strike(lambda s: act(s.box.folder / disk), disk=disk, mend=lambda s: mend(s.box.folder / disk))


def forbid(struck: Struck) -> None:
    struck.kept = disks.forbid(struck.box.root)


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
    "disk of the install full": on(INSTALL, disks.fill, disks.free),
    "disk of the state full": on(STATE, disks.fill, disks.free),
    "install read-only": on(INSTALL, disks.make_read_only, disks.unmount),
    "state read-only": on(STATE, disks.make_read_only, disks.unmount),
    "permission denied": Strike(forbid, unprivileged=True, mend=lambda s: disks.allow(s.kept)),
}
