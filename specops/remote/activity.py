"""What the processes of a load do: reading, computing, building, or nothing. A slow load is not a stall."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from . import procs

LOOK_S = 1.0
READ_STEP = 8 * 1024 * 1024
"""Bytes from disk that count as progress: a slow disk writes no log lines, but it is not stuck."""
BUILDERS = frozenset({"nvcc", "cicc", "ptxas", "cudafe++", "cc1plus", "ninja", "ld", "ld.lld"})
"""Kernels that are compiled at start take minutes without a word in the log."""
BUSY_CORES, IDLE_CORES = 0.3, 0.05
"""Of processor time a second. In between it may be what is left to it by others, or what waiting costs."""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Activity:
    """Looked at about once a second; the rates are those of the last two looks."""

    read: int = 0
    """Bytes from disk since the first look, also of processes that ended meanwhile."""
    moved_at: float = field(default_factory=time.monotonic)
    """Monotonic seconds of the last progress that no log tells: bytes read, a compiler at work."""
    read_rate: float = 0.0
    """Bytes a second."""
    cores: float = 0.0
    """Processor time a second."""
    stopped: int | None = None
    """A process that somebody stopped (SIGSTOP)."""
    sleeping_on_disk: int | None = None
    builder: str = ""
    busiest: int | None = None
    _looked: float = 0.0
    _counted: int = 0
    _bytes: dict[int, int] = field(default_factory=dict)
    _ticks: dict[int, int] = field(default_factory=dict)

    def look(self, pids: Iterable[int], *, force: bool = False) -> None:
        now = time.monotonic()
        if now - self._looked < LOOK_S and not force:
            return
        bytes_now, ticks_now = {}, {}
        self.stopped = self.sleeping_on_disk = None
        self.builder = ""
        for pid in pids:
            process = procs.read_process(pid)
            if process is None:
                continue
            bytes_now[pid], ticks_now[pid] = bytes_read(pid), procs.cpu_ticks(pid)
            if process.state in "Tt":
                self.stopped = pid
            if process.state == "D":
                self.sleeping_on_disk = pid
            if process.comm in BUILDERS:
                self.builder = process.comm
        self._take(bytes_now, ticks_now, now)

    def _take(self, bytes_now: dict[int, int], ticks_now: dict[int, int], now: float) -> None:
        since_s = max(now - self._looked, 1e-3)
        more = sum(max(0, count - self._bytes.get(pid, 0)) for pid, count in bytes_now.items())
        spent = {pid: ticks - self._ticks[pid] for pid, ticks in ticks_now.items() if pid in self._ticks}
        if self._looked:
            self.read_rate, self.cores = more / since_s, sum(spent.values()) / TICKS / since_s
        self.busiest = max(spent, key=lambda pid: spent[pid], default=None)
        self.read += more
        if self.read >= self._counted + READ_STEP or self.builder:
            self._counted, self.moved_at = self.read, now
        self._bytes, self._ticks, self._looked = bytes_now, ticks_now, now

    def explain(self, members: Callable[[], Iterable[int]]) -> str:
        """Hung or busy, by what these processes do in half a second."""
        self.look(members(), force=True)
        time.sleep(0.5)
        self.look(members(), force=True)
        return self.words()

    def words(self) -> str:
        """What goes on, for whoever waits; also why a load that stood still did."""
        if self.stopped is not None:
            return f"process {self.stopped} is stopped (SIGSTOP)"
        if self.builder:
            return f"kernels are being compiled ({self.builder})"
        if self.read_rate >= 1e6:
            return f"reads {self.read_rate / 1e6:.0f} MB/s from disk"
        if self.cores >= BUSY_CORES:
            return f"process {self.busiest} is busy on the CPU ({self.cores:.1f} cores in all)"
        if self.sleeping_on_disk is not None:
            return f"process {self.sleeping_on_disk} waits for a disk or a driver (state D)"
        if self.cores >= IDLE_CORES:
            return f"its processes compute little ({self.cores:.2f} cores in all) and read nothing"
        return "its processes neither compute nor read: they wait for something"


def bytes_read(pid: int) -> int:
    """From disk or a network file system, as /proc/<pid>/io counts it; 0 where it may not be read."""
    try:
        with open(f"/proc/{pid}/io") as file:
            for line in file:
                if line.startswith("read_bytes:"):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0
