"""Stopping and starting a server through whoever supervises it, so that nobody starts it behind our back."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from . import procs
from .context import OpFailed

Json = Any
ASK_S = 20.0
START_S = 60.0
POLL_S = 0.2
TOOLS = "/usr/bin:/bin:/usr/local/bin:/usr/sbin:/sbin"
INHERITED = (
    "SUPERVISOR_ENABLED",
    "SUPERVISOR_PROCESS_NAME",
    "SUPERVISOR_GROUP_NAME",
    "SUPERVISOR_SERVER_URL",
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "SYSTEMD_EXEC_PID",
    "MAINPID",
)
"""What a supervisor tells its child: a server that is started without it must not believe it has one."""


def find_control(
    boss: dict[str, str], processes: dict[int, procs.Process], pid: int
) -> dict[str, list[str]] | None:
    """`{stop, start, pid}`, each the words of a command; None where we cannot drive this supervisor.

    Finding it asks nobody: whether it obeys is seen when it is told to.
    """
    if boss["kind"] == "supervisord":
        return _supervisord(processes, pid)
    if boss["kind"] in ("systemd", "systemd --user"):
        return _systemd(boss, processes[pid].uid)
    return None


def _systemd(boss: dict[str, str], owner: int) -> dict[str, list[str]] | None:
    program = shutil.which("systemctl", path=TOOLS)
    user = boss["kind"].endswith("--user")
    allowed = os.geteuid() == owner if user else os.geteuid() == 0
    if program is None or not allowed:
        return None
    words = [program, *(["--user"] if user else [])]
    return {
        "stop": [*words, "stop", boss["name"]],
        "start": [*words, "start", boss["name"]],
        "pid": [*words, "show", "--property=MainPID", "--value", boss["name"]],
    }


def _supervisord(processes: dict[int, procs.Process], pid: int) -> dict[str, list[str]] | None:
    environ = procs.read_environ(pid) or {}
    name, group = environ.get("SUPERVISOR_PROCESS_NAME"), environ.get("SUPERVISOR_GROUP_NAME")
    daemon = _ancestor(processes, pid)
    if not name or daemon is None:
        return None
    words = _supervisorctl(daemon, environ.get("SUPERVISOR_SERVER_URL"))
    if words is None:
        return None
    full = f"{group or name}:{name}"
    return {verb: [*words, verb, full] for verb in ("stop", "start", "pid")}


def _ancestor(processes: dict[int, procs.Process], pid: int) -> int | None:
    seen = set()
    while pid in processes and pid not in seen and pid > 1:
        seen.add(pid)
        argv = procs.read_argv(pid)
        if any(os.path.basename(word) == "supervisord" for word in argv[:3]):
            return pid
        pid = processes[pid].ppid
    return None


def _supervisorctl(daemon: int, url: str | None) -> list[str] | None:
    """supervisorctl as it lies beside supervisord, told where that listens: by its configuration, else by
    the address that it gave to its children."""
    argv, cwd = procs.read_argv(daemon), procs.read_link(daemon, "cwd") or "/"
    at = next(i for i, word in enumerate(argv[:3]) if os.path.basename(word) == "supervisord")
    beside = os.path.join(cwd, os.path.dirname(argv[at]), "supervisorctl")
    program = beside if os.access(beside, os.X_OK) else shutil.which("supervisorctl", path=TOOLS)
    if program is None:
        return None
    # the interpreter that runs supervisord: a script's first line may name one that is gone
    words = [argv[0], program] if at > 0 and argv[0].startswith("/") and program == beside else [program]
    config = _config(argv[at + 1 :], cwd)
    if config:
        return [*words, "-c", config]
    return [*words, "-s", url] if url else None


def _config(argv: list[str], cwd: str) -> str | None:
    for index, word in enumerate(argv):
        if word in ("-c", "--configuration") and index + 1 < len(argv):
            return os.path.join(cwd, argv[index + 1])
        if word.startswith("--configuration="):
            return os.path.join(cwd, word.partition("=")[2])
    return None


def stop(control: dict[str, list[str]], wait_s: float) -> None:
    """Raises `supervisor_refused`; then nothing was stopped, or it is not known what."""
    _call(control["stop"], wait_s + ASK_S, "the server was not stopped by its supervisor")


def start(control: dict[str, list[str]]) -> procs.Process:
    """Start it and return its launcher. Raises `supervisor_refused`."""
    _call(control["start"], START_S, "the server was not started by its supervisor")
    until = time.monotonic() + ASK_S
    while time.monotonic() < until:
        said = _call(control["pid"], ASK_S, "").strip().splitlines()[-1:]
        if said and said[0].isdigit() and int(said[0]) > 0:
            process = procs.read_process(int(said[0]))
            if process is not None:
                return process
        time.sleep(POLL_S)
    raise _refused(control["pid"], "it names no process", "the server was not started by its supervisor")


def _call(argv: list[str], wait_s: float, host_state: str) -> str:
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=wait_s,
            stdin=subprocess.DEVNULL,
            env=_environment(),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _refused(argv, str(error), host_state) from error
    said = (done.stdout + done.stderr).strip()
    # supervisorctl ends with 0 for some refusals, and says ERROR
    if done.returncode != 0 or "ERROR" in said:
        raise _refused(argv, said[-400:] or f"code {done.returncode}", host_state)
    return done.stdout


def _environment() -> dict[str, str]:
    runtime = f"/run/user/{os.geteuid()}"
    return {"PATH": TOOLS, "XDG_RUNTIME_DIR": os.environ.get("XDG_RUNTIME_DIR") or runtime}


def _refused(argv: list[str], said: str, host_state: str) -> OpFailed:
    words = " ".join([Path(argv[0]).name, *argv[1:]])
    return OpFailed(
        "supervisor_refused",
        f"`{words}` failed: {said}",
        host_state=host_state,
        next_command=f"try it by hand: {words}",
    )
