"""Lateness: what the load generator itself costs, since a busy client would measure itself."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from .figures import percentile

Json = Any
STEP_S = 0.02
LIMIT_P99_S = 0.05
LIMIT_MEAN_S = 0.01
LIMIT_CPU = 0.9
"""Share of a core: one event loop has no second one."""


class Lateness:
    """Use as an async context manager around what is measured."""

    def __init__(self) -> None:
        self.late: list[float] = []

    async def __aenter__(self) -> Lateness:
        self._cpu, self._wall = time.process_time(), time.monotonic()
        self._task = asyncio.ensure_future(self._measure())
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._task.cancel()
        self.cpu_s = time.process_time() - self._cpu
        self.wall_s = time.monotonic() - self._wall

    async def _measure(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(STEP_S)
            self.late.append(max(0.0, time.monotonic() - before - STEP_S))

    def describe(self) -> dict[str, Json]:
        """{lag_s: {avg, p50, p90, p99}, lag_max_s, cpu_s, cpu_share, rss_mb}."""
        late = sorted(self.late)
        return {
            "lag_s": {
                "avg": sum(late) / len(late) if late else 0.0,
                **{f"p{p}": percentile(late, p) for p in (50, 90, 99)},
            },
            "lag_max_s": late[-1] if late else 0.0,
            "cpu_s": self.cpu_s,
            "cpu_share": self.cpu_s / self.wall_s if self.wall_s > 0 else 0.0,
            "rss_mb": read_peak_kb() / 1024,
        }


def read_peak_kb() -> int:
    """The most memory that this program held. Not ru_maxrss: that begins with what its parent held."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0


def is_limited(client: dict[str, Json]) -> bool:
    """Whether the client was itself the bottleneck."""
    lag = client["lag_s"]
    late = lag["p99"] > LIMIT_P99_S or lag["avg"] > LIMIT_MEAN_S
    return bool(late or client["cpu_share"] > LIMIT_CPU)
