"""The guardian: a small parent of the agent that settles the deploy when the agent dies.

Both come from one fork without exec, so both hold the lock, and no server ever does.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import executor, journal, lock, settle
from .deploy import Deploy
from .lock import Lock
from .state import Instance

Json = Any
OOM_GUARDIAN = "-900"
TICK_MS = 200
Work = Callable[[Deploy, Callable[[], str]], None]
"""What the agent does: execute the plan, or settle it."""


@dataclass(frozen=True)
class Job:
    instance: Instance
    deploy_id: str
    agent_zip: Path
    why: str
    work: Work

    def deploy(self) -> Deploy:
        return Deploy(self.instance, self.deploy_id, self.agent_zip)


def start(job: Job, held: Lock) -> int:
    """Fork the guardian away from this process and give it the lock. Returns its pid."""
    pid = os.fork()
    if pid:
        held.close()
        return pid
    status = 70
    try:
        detach(job.instance.deploy(job.deploy_id) / "agent.stderr", keep=held.fileno())
        status = guard(job, held)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def detach(stderr: Path, keep: int) -> None:
    """Own session, nothing of the login left: no fd, no folder, no signal that a closed link sends."""
    os.setsid()
    os.chdir("/")
    os.umask(0o022)
    null = os.open(os.devnull, os.O_RDWR)
    log = os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for fd, target in ((null, 0), (null, 1), (log, 2)):
        os.dup2(fd, target)
    kept = {0, 1, 2, keep, *_own_zip_fds()}
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        # A handler and not SIG_IGN: an ignored signal would stay ignored in every server we start.
        signal.signal(number, lambda *_: None)


def _own_zip_fds() -> set[int]:
    """Modules are still loaded from the zip in memory, by /proc/self/fd/<n>."""
    prefix = "/proc/self/fd/"
    return {int(path[len(prefix) :]) for path in sys.path if path.startswith(prefix)}


def guard(job: Job, held: Lock) -> int:
    """Run the agent; settle in its place when it dies. Returns this process's exit status."""
    since = time.time()
    old_score = _set_oom_score(OOM_GUARDIAN)
    guardian = os.getpid()
    pid = os.fork()
    if pid == 0:
        if old_score is not None:
            _set_oom_score(old_score)
        _agent(job, held, since, guardian)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)
    died = _await_agent(job, held, pid, since)
    if died or not journal.replay_deploy(job.instance.deploy(job.deploy_id)).closed:
        held.answer_in_thread(lambda: owner(job, os.getpid(), since))
        _settle_for_dead(job.deploy(), died or "ended without closing the deploy")
    job.deploy().drop_late_abort()
    return 0


def _agent(job: Job, held: Lock, since: float, guardian: int) -> None:
    """The child's whole life."""
    status = 70
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        deploy = job.deploy()
        told: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
        held.answer_in_thread(lambda: owner(job, os.getpid(), since), when=lambda: os.getppid() != guardian)
        job.work(deploy, lambda: deploy.abort_reason() or ("told to end by a signal" if told else ""))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _await_agent(job: Job, held: Lock, pid: int, since: float) -> str:
    """ "" after a normal end, else how it died. What it left in its process group dies with it."""
    watch = select.poll()
    watch.register(held.fileno(), select.POLLIN)
    with contextlib.suppress(OSError):  # a kernel without pidfd: its end is seen at the next tick
        watch.register(os.pidfd_open(pid), select.POLLIN)
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        with contextlib.suppress(InterruptedError):
            if watch.poll(TICK_MS):
                held.answer(lambda: owner(job, pid, since))
    # Not reaped yet, so its pid and its group's number cannot have been given to anybody else.
    # A server that it launched is in a session of its own.
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return ""
    return f"signal {-code}" if code < 0 else f"exit status {code}"


def _settle_for_dead(deploy: Deploy, died: str) -> None:
    now = journal.replay_deploy(deploy.dir)
    if now.ended:
        return
    index = max(now.started, default=-1)
    during = now.in_step() if now.cause is None else "the rollback"
    message = f"the agent died ({died})" + (f" during {during}" if during else "")
    cause = {
        "id": "agent_died",
        "message": message,
        "index": index,
        "step": during or None,
        "phase": now.phase,
        "next_command": "specops evidence",
    }
    if not now.committed and now.cause is None:
        settle.try_record(
            deploy, {"entry": "failed", "index": index, "error": {"code": "agent_died", "message": message}}
        )
        executor.collect_evidence(deploy, cause)
    settle.settle(deploy, cause)


def owner(job: Job, pid: int, since: float) -> dict[str, Json]:
    phase = journal.replay_deploy(job.instance.deploy(job.deploy_id)).phase
    return lock.describe_owner(pid=pid, deploy=job.deploy_id, phase=phase, since=since, why=job.why)


def _set_oom_score(score: str) -> str | None:
    """The score before; None where it may not be lowered (it needs a privilege) and is as it was."""
    path = Path("/proc/self/oom_score_adj")
    try:
        before = path.read_text().strip()
        path.write_text(score)
    except OSError:
        return None
    return before
