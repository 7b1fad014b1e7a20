"""Who is on the GPUs of a server beside its own processes: named, never signalled."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from . import gpus, members, procs
from .procs import Process

Json = Any


@dataclass(frozen=True)
class Holding:
    """What a server holds, from before anything of it was stopped."""

    launcher: int
    uid: int
    exe: str | None
    devices: frozenset[str]
    uuids: frozenset[str]
    """GPUs on which nvidia-smi shows one of its processes."""


def read_holding(processes: dict[int, Process], launcher: int, mine: Iterable[int]) -> Holding:
    own = set(mine)
    return Holding(
        launcher=launcher,
        uid=processes[launcher].uid if launcher in processes else os.geteuid(),
        exe=procs.read_link(launcher, "exe"),
        devices=frozenset().union(*map(procs.devices_of, own)),
        uuids=frozenset(uuid for uuid, pid, _ in gpus.read_apps() if pid in own),
    )


def find_others(processes: dict[int, Process], held: Holding, mine: Iterable[int]) -> list[dict[str, Json]]:
    """[{pid, start_ticks, line, bytes, on, lost}]: processes on the server's GPUs that are not its own.

    By nvidia-smi, and, where that shows no pids (another pid namespace), by open devices: then only what
    runs as the server does (user, interpreter) and below no other server. `lost`: a worker of SGLang
    without a launcher.
    """
    own = set(mine)
    found: dict[int, dict[str, Json]] = {}
    for uuid, pid, size in gpus.read_apps():
        if uuid in held.uuids and pid not in own and pid in processes:
            entry = found.setdefault(pid, {"bytes": 0, "on": []})
            entry["bytes"] += size
            entry["on"].append(uuid)
    for pid, process in processes.items() if held.devices else ():
        if pid in own or pid in found or process.uid != held.uid or not process.living:
            continue
        if procs.read_link(pid, "exe") == held.exe and _server_of(processes, pid) is None:
            shared = procs.devices_of(pid) & held.devices
            if shared:
                found[pid] = {"bytes": 0, "on": sorted(f"{procs.DEVICES}/{name}" for name in shared)}
    return [
        {
            "pid": pid,
            "start_ticks": processes[pid].start_ticks,
            "line": members.describe_process(pid),
            "lost": _is_lost(processes, pid),
            **entry,
        }
        for pid, entry in sorted(found.items())
    ]


def _server_of(processes: dict[int, Process], pid: int) -> int | None:
    """The living launcher at or above `pid`."""
    top = members.find_launcher(processes, pid)
    argv = procs.read_argv(top)
    return top if members.is_sglang(argv) and not argv[0].startswith("sglang::") else None


def _is_lost(processes: dict[int, Process], pid: int) -> bool:
    title = procs.read_argv(pid)[:1]
    return bool(title and title[0].startswith("sglang::")) and _server_of(processes, pid) is None


def describe(other: dict[str, Json]) -> str:
    size = f"{other['bytes'] / 2**30:.1f} GiB on " if other["bytes"] else ""
    return f"{other['line']} ({size}{', '.join(other['on'])})"
