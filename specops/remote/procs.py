"""Processes of this machine as /proc shows them. A pid is only ever trusted together with its start ticks."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

COOKIE = "SPECOPS_COOKIE"
"""Environment variable that marks every process of a server that specops started."""
DEVICES = "/dev"
DEVICE = re.compile(r"nvidia\d+")
"""One for each GPU. Whoever computes on it has it open; the driver's own services too."""


@dataclass(frozen=True)
class Process:
    """One line of /proc/<pid>/stat."""

    pid: int
    ppid: int
    pgid: int
    sid: int
    start_ticks: int
    """Clock ticks from boot to its start: with the pid, unique until the next boot."""
    state: str
    uid: int
    comm: str

    @property
    def living(self) -> bool:
        """False for a zombie: it holds no memory, port or device, only its entry."""
        return self.state not in "ZXx"

    @property
    def key(self) -> tuple[int, int]:
        return (self.pid, self.start_ticks)


def read_process(pid: int) -> Process | None:
    """None when there is no such process (or it went while we looked)."""
    try:
        raw = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        uid = os.stat(f"/proc/{pid}").st_uid
    except (OSError, ValueError):
        return None
    return _parse_stat(pid, raw, uid)


def _parse_stat(pid: int, raw: str, uid: int) -> Process | None:
    # comm may hold spaces and parentheses, so the last ")" ends it
    head, _, tail = raw.rpartition(")")
    fields = tail.split()
    if len(fields) < 20:
        return None
    return Process(
        pid=pid,
        ppid=int(fields[1]),
        pgid=int(fields[2]),
        sid=int(fields[3]),
        start_ticks=int(fields[19]),
        state=fields[0],
        uid=uid,
        comm=head.partition("(")[2],
    )


def scan_processes() -> dict[int, Process]:
    """Every process by pid, zombies included."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = read_process(int(name))
            if process:
                found[process.pid] = process
    return found


def lives(pid: int, start_ticks: int) -> bool:
    process = read_process(pid)
    return process is not None and process.living and process.start_ticks == start_ticks


def read_argv(pid: int) -> list[str]:
    """Empty for kernel threads, zombies and processes that are not ours to read."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    words = raw.rstrip(b"\0").split(b"\0") if raw.strip(b"\0") else []
    return [os.fsdecode(word) for word in words]


def read_environ(pid: int) -> dict[str, str] | None:
    """The environment it was started with; None where it may not be read.

    A process that renames itself (setproctitle) may have overwritten it: then it is empty or cut.
    """
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    pairs = (entry.partition(b"=") for entry in raw.split(b"\0") if b"=" in entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs if name}


def read_link(pid: int, name: str) -> str | None:
    """Target of /proc/<pid>/<name> (`cwd`, `exe`, `ns/mnt`); ends in " (deleted)" where it is gone."""
    try:
        return os.readlink(f"/proc/{pid}/{name}")
    except OSError:
        return None


def read_status(pid: int) -> dict[str, str]:
    """/proc/<pid>/status by field name; empty when gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def start_time(process: Process) -> float:
    """Unix seconds of its start, to a clock tick."""
    with open("/proc/uptime") as file:
        uptime_s = float(file.read().split()[0])
    return time.time() - uptime_s + process.start_ticks / os.sysconf("SC_CLK_TCK")


def descendants(processes: dict[int, Process], roots: Iterable[int]) -> set[int]:
    """The roots and everything below them by parent, as far as they are in `processes`."""
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.ppid, []).append(process.pid)
    found: set[int] = set()
    queue = [pid for pid in roots if pid in processes]
    while queue:
        pid = queue.pop()
        if pid not in found:
            found.add(pid)
            queue.extend(children.get(pid, ()))
    return found


def carriers(processes: dict[int, Process], cookie: str) -> set[int]:
    """Living processes with this SPECOPS_COOKIE in their environment."""
    return {
        pid
        for pid, process in processes.items()
        if process.living and (read_environ(pid) or {}).get(COOKIE) == cookie
    }


@dataclass(frozen=True)
class Listener:
    """One listening TCP socket."""

    inode: int
    address: str
    """As text; `0.0.0.0` or `::` for all."""
    uid: int


def read_listeners(port: int) -> list[Listener]:
    found, mark = [], f":{port:04X} "
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        try:
            lines = Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            if mark not in line:  # a host with many connections has thousands of lines
                continue
            fields = line.split()
            host, _, hex_port = fields[1].rpartition(":")
            if fields[3] == "0A" and int(hex_port, 16) == port:
                found.append(Listener(int(fields[9]), _address(host, family), int(fields[7])))
    return found


def _address(text: str, family: int) -> str:
    raw = bytes.fromhex(text)
    # the kernel prints each 32-bit word in host order (little endian wherever SGLang runs)
    words = b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
    return socket.inet_ntop(family, words)


def socket_holders(processes: dict[int, Process], inodes: Iterable[int]) -> set[int]:
    """Processes with one of these sockets open, among those whose descriptors we may read."""
    wanted = {f"socket:[{inode}]" for inode in inodes}
    if not wanted:
        return set()
    return {pid for pid, process in processes.items() if process.living and wanted & _open_links(pid)}


def _open_links(pid: int) -> set[str]:
    links: set[str] = set()
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return links
    for name in names:
        with contextlib.suppress(OSError):
            links.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return links


def devices_of(pid: int) -> set[str]:
    """Names of the GPU devices that a process has open, as far as its descriptors may be read."""
    pairs = (link.rpartition("/") for link in _open_links(pid))
    return {name for folder, _, name in pairs if folder == DEVICES and DEVICE.fullmatch(name)}


def port_holders(processes: dict[int, Process], port: int) -> set[int]:
    return socket_holders(processes, (listener.inode for listener in read_listeners(port)))


def port_is_free(port: int) -> bool:
    """Whether a server could bind it now: the way SGLang's own server does, with SO_REUSEADDR."""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):  # noqa: S104
        try:
            probe = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue
        with probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                probe.bind((address, port))
                probe.listen(1)
            except OSError as error:
                if error.errno == 98:  # EADDRINUSE; anything else says this family is not here
                    return False
    return True


def send_signal(process: Process, number: int) -> bool:
    """Signal exactly this process, never a later one with its pid. False when it is gone.

    Raises PermissionError where it is another user's.
    """
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except OSError:
        return _kill_checked(process, number)
    try:
        if not lives(process.pid, process.start_ticks):
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)


def _kill_checked(process: Process, number: int) -> bool:
    """For kernels without pidfd (before 5.3)."""
    if not lives(process.pid, process.start_ticks):
        return False
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    return True


CHILDREN: dict[int, subprocess.Popen[bytes]] = {}
"""Servers that this very program started, so that it can reap them and tell how they ended."""


def exit_status(pid: int) -> int | None:
    """Exit code of a dead child of this program (negative: by signal), reaping it; None for others."""
    child = CHILDREN.get(pid)
    return child.poll() if child else None


def read_end(pid: int) -> int | None:
    """How a zombie ended, as exit_status has it, by /proc: also where threads of it still end, and it cannot
    be reaped yet. None where that cannot be read (0 stands there too where it must not be)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        status = int(fields[49]) if fields[0] in "ZXx" else 0
    except (OSError, ValueError, IndexError):
        return None
    return os.waitstatus_to_exitcode(status) if status else None


def children_of(pid: int) -> set[int]:
    """All descendants, by the kernel's own lists where it keeps them: cheap enough to ask five times
    a second."""
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return descendants(scan_processes(), [pid]) - {pid}
    found: set[int] = set()
    queue = [pid]
    while queue:
        for child in _read_children(queue.pop()):
            if child not in found:
                found.add(child)
                queue.append(child)
    return found


def _read_children(pid: int) -> list[int]:
    """Direct children, of all its threads."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    children: list[int] = []
    for thread in threads:
        with contextlib.suppress(OSError):
            listed = Path(f"/proc/{pid}/task/{thread}/children").read_text()
            children.extend(int(child) for child in listed.split())
    return children


def cpu_ticks(pid: int) -> int:
    """User and system time of a process, in clock ticks."""
    try:
        raw = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return 0
    fields = raw.rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
