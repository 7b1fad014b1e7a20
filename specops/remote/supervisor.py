"""Who would start a server again behind our back: systemd, a supervisor, a container, a restart loop."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from . import procs, supervised
from .procs import Process

SUPERVISORS = {
    "supervisord": "supervisord",
    "runsv": "runit",
    "s6-supervise": "s6",
    "supervise": "daemontools",
    "circusd": "circus",
    "pm2": "pm2",
    "god": "god",
    "monit": "monit",
}
SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "ash", "busybox")
NOT_OWNERS = re.compile(
    r"^(user@\d+|user-runtime-dir@.*|sshd?|sshd@.*|cron|crond|atd|docker|containerd)\.service$"
)
CONTAINER = re.compile(
    r"(docker|libpod|cri-containerd|crio|kubepods|containerd|lxc|machine)[-./a-z0-9_]*", re.I
)
LOOP = re.compile(r"(^|[\s;&|(])(while|until)\s")
SCRIPT_CAP = 256 * 1024


def find_supervisor(processes: dict[int, Process], pid: int) -> dict[str, Any] | None:
    """`{kind, name, how, control}` of what owns the launcher `pid`, None where nothing does. `control` is
    how it is told to stop and start it (supervised.py), None where we cannot tell it."""
    boss = _container(processes, pid) or _ancestor(processes, pid) or _systemd(pid)
    return None if boss is None else {**boss, "control": supervised.find_control(boss, processes, pid)}


def _cgroups(pid: int | str) -> list[str]:
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return []
    return [line.split(":", 2)[2] for line in lines if line.count(":") >= 2]


def _container(processes: dict[int, Process], pid: int) -> dict[str, str] | None:
    for namespace in ("pid", "mnt"):
        ours, theirs = os.readlink(f"/proc/self/ns/{namespace}"), procs.read_link(pid, f"ns/{namespace}")
        if theirs is not None and theirs != ours:
            groups = [group for group in _cgroups(pid) if CONTAINER.search(group)]
            name = os.path.basename(groups[0]) if groups else "unknown"
            return {"kind": "container", "name": name, "how": f"its {namespace} namespace is not ours"}
    if pid == 1:
        return {"kind": "container", "name": "", "how": "it is process 1 of this container"}
    process, first = processes.get(pid), processes.get(1)
    if process is not None and first is not None and process.ppid == 1 and process.sid == first.sid != 0:
        return {"kind": "container", "name": "", "how": "it is part of the container's own command"}
    return None


def _systemd(pid: int) -> dict[str, str] | None:
    own = set(_cgroups("self"))
    for group in _cgroups(pid):
        unit = os.path.basename(group)
        if unit.endswith(".service") and group not in own and not NOT_OWNERS.match(unit):
            kind = "systemd --user" if "/user@" in group else "systemd"
            return {"kind": kind, "name": unit, "how": f"its cgroup {group}"}
    return None


def find_scope(pid: int) -> str | None:
    """`user` or `system` where specops started it in a scope of its own (logout.py)."""
    for group in _cgroups(pid):
        if re.search(r"/specops-[^/]+\.scope$", group):
            return "user" if "/user@" in group else "system"
    return None


def _ancestor(processes: dict[int, Process], pid: int) -> dict[str, str] | None:
    environ = procs.read_environ(pid) or {}
    if environ.get("SUPERVISOR_ENABLED") and environ.get("SUPERVISOR_PROCESS_NAME"):
        return {
            "kind": "supervisord",
            "name": environ["SUPERVISOR_PROCESS_NAME"],
            "how": "SUPERVISOR_PROCESS_NAME in its environment",
        }
    seen = {pid}
    above = processes[pid].ppid if pid in processes else 0
    while above > 1 and above in processes and above not in seen:
        seen.add(above)
        found = _judge_ancestor(
            above, processes[above], same_session=processes[above].sid == processes[pid].sid
        )
        if found:
            return found
        above = processes[above].ppid
    return None


def _judge_ancestor(pid: int, process: Process, *, same_session: bool) -> dict[str, str] | None:
    argv = procs.read_argv(pid)
    programs = [os.path.basename(word) for word in argv[:2]]
    for program in [process.comm, *programs]:
        if program.lower() in SUPERVISORS:
            return {
                "kind": SUPERVISORS[program.lower()],
                "name": "",
                "how": f"its ancestor {program} (pid {pid})",
            }
    # a shell that merely started a detached server, as a build's script does, does not wait for it
    shell = same_session and bool(programs) and programs[0].lstrip("-") in SHELLS
    if shell and LOOP.search(_script(pid, argv)):
        shown = " ".join(argv)[:80]
        return {"kind": "a restart loop", "name": "", "how": f"its ancestor `{shown}` (pid {pid})"}
    return None


def _script(pid: int, argv: list[str]) -> str:
    """What a shell runs: the text of -c, or the script's; empty for an interactive one."""
    words = argv[1:]
    for index, word in enumerate(words):
        if word.startswith("-") and not word.startswith("--") and word.endswith("c"):
            return words[index + 1] if index + 1 < len(words) else ""
        if not word.startswith("-"):
            path = os.path.join(procs.read_link(pid, "cwd") or "/", word)
            try:
                with open(path, "rb") as file:
                    return file.read(SCRIPT_CAP).decode("utf-8", "replace")
            except OSError:
                return ""
    return ""
