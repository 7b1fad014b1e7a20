"""The lab's processes, found by what they carry or as we started them, and never by their names."""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from specops.lab.state import COOKIE

TERM_WAIT_S = 8.0
KILL_WAIT_S = 10.0
RECORD = "started.jsonl"
HIGHEST_PORT, GRPC_ABOVE = 65535, 10_000
"""In a lab's folder: pid and start ticks of what was started. sshd writes its title over its environment,
so that neither it nor its sessions can be known by what they carry."""


STARTED: list[subprocess.Popen[bytes]] = []
"""What this process started and leaves running; kept, so that each is reaped where it ends before us."""


@atexit.register
def reap() -> None:
    for process in STARTED:
        process.poll()


def start_detached(
    argv: Sequence[str], env: Mapping[str, str], log: Path, cwd: Path
) -> subprocess.Popen[bytes]:
    """In a session of its own, without our descriptors; output is appended to `log`. `env` names its lab."""
    STARTED[:] = [process for process in STARTED if process.poll() is None]
    with open(log, "ab") as out:
        process = subprocess.Popen(
            argv,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    STARTED.append(process)
    with open(Path(env[COOKIE]) / RECORD, "a") as record:
        record.write(json.dumps([process.pid, start_ticks(process.pid)]) + "\n")
    return process


def read_stat(pid: int) -> list[str]:
    """Fields of /proc/<pid>/stat from the state on; empty where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def start_ticks(pid: int) -> int:
    """Clock ticks from boot to its start: with the pid, unique until the next boot. 0 where it is gone."""
    stat = read_stat(pid)
    return int(stat[19]) if stat else 0


def recorded(folder: Path) -> set[int]:
    """What the record names, if it is still that, with its descendants."""
    try:
        lines = (folder / RECORD).read_text().splitlines()
    except OSError:
        return set()
    found = {pid for pid, ticks in map(json.loads, lines) if ticks and start_ticks(pid) == ticks}
    parents = {
        int(entry.name): read_stat(int(entry.name))
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit()
    }
    grown = True
    while grown:
        children = {pid for pid, stat in parents.items() if stat and int(stat[1]) in found} - found
        found |= children
        grown = bool(children)
    return {pid for pid in found if parents.get(pid, ["Z"])[0] != "Z"}


def carrying(folder: Path) -> list[int]:
    """Pids that belong to the lab in `folder`, by their environment or by the record; zombies left out."""
    mark = f"{COOKIE}={folder}".encode()
    found = recorded(folder)
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0") and not is_zombie(entry):
                found.add(int(entry.name))
        except OSError:
            continue
    return sorted(found - {os.getpid()})


def is_zombie(entry: Path) -> bool:
    return (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"


def stop_carrying(folder: Path) -> list[int]:
    """TERM, wait, KILL, until none is left. Returns the pids that outlived even that."""
    for number, wait_s in ((signal.SIGTERM, TERM_WAIT_S), (signal.SIGKILL, KILL_WAIT_S)):
        until = time.monotonic() + wait_s
        while (left := carrying(folder)) and time.monotonic() < until:
            for pid in left:
                _signal(pid, number)
            time.sleep(0.2)
        if not left:
            (folder / RECORD).unlink(missing_ok=True)
            return []
    return carrying(folder)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        return


def await_free(ports: Iterable[int], wait_s: float = KILL_WAIT_S) -> list[int]:
    """Wait until each can be bound; the ports that still cannot. A dying process has no environment to be
    found by while its socket is still closing."""
    until = time.monotonic() + wait_s
    while (held := [port for port in ports if not can_bind(port)]) and time.monotonic() < until:
        time.sleep(0.1)
    return held


def can_bind(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port(wish: int | None = None) -> int:
    """`wish` where it can be bound, else any that leaves room above it: SGLang since 0.5.11 derives one
    for gRPC from it, and does not start where that is none."""
    if wish is not None and can_bind(wish):
        return wish
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port <= HIGHEST_PORT - GRPC_ABOVE:
            return port
