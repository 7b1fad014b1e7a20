"""Where the time of one decode step goes, from a trace of torch's profiler.

SGLang writes such a trace by itself (`/start_profile`); `read_trace` needs the file alone, no GPU.
"""

from __future__ import annotations

import asyncio
import collections
import gzip
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.gpu.levels import SETTLE_S, Flow, abort, tokens_for, until_idle

STEPS = 12
WAIT_S = 90.0
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
WAITS = ("cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize")
TOP = 8
Row = dict[str, Any]


async def profile_level(url: str, size: int, folder: Path) -> Row:
    """One row of `size` running requests: see `read_trace`. Raises RuntimeError if no trace comes."""
    folder.mkdir(parents=True, exist_ok=True)
    timeout, connector = aiohttp.ClientTimeout(total=300), aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        flows = [Flow() for _ in range(size)]
        tasks = [asyncio.create_task(flow.run(session, url, tokens_for(size))) for flow in flows]
        until = time.monotonic() + WAIT_S
        while not all(flow.said or flow.ended for flow in flows) and time.monotonic() < until:
            await asyncio.sleep(0.05)
        await asyncio.sleep(SETTLE_S)
        if over := [flow.ended for flow in flows if flow.ended]:
            raise RuntimeError(f"C={size}: {over[0]}")
        body = {"output_dir": str(folder), "num_steps": STEPS, "activities": ["CPU", "GPU"]}
        async with session.post(f"{url}/start_profile", json=body) as answer:
            answer.raise_for_status()
        trace = await _await_trace(folder, until + WAIT_S)
        await abort(session, url, flows)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await until_idle(session, url)
    with gzip.open(trace) as packed:
        return {"C": size, **read_trace(json.load(packed)["traceEvents"], STEPS)}


async def _await_trace(folder: Path, until: float) -> Path:
    """The trace once it has stopped growing."""
    before = -1
    while time.monotonic() < until:
        found = sorted(folder.rglob("*.trace.json.gz"))
        if found and found[0].stat().st_size == before:
            return found[0]
        before = found[0].stat().st_size if found else -1
        await asyncio.sleep(1.0)
    raise RuntimeError(f"no trace came to {folder}")


def read_trace(events: Iterable[Row], steps: int) -> Row:
    """Milliseconds and counts by step of a trace over `steps` steps.

    `step_ms` is the time between the first and the last thing on the GPU, by step; `gpu_ms` that in which
    anything ran there; `idle_ms` the rest. `waits_ms` is what threads of the host spent waiting for the GPU.
    """
    spans: list[tuple[float, float]] = []
    names, calls, waits = collections.defaultdict[str, float](float), collections.Counter[str](), 0.0
    for event in events:
        kind, name, lasted = event.get("cat"), str(event.get("name")), float(event.get("dur") or 0)
        if kind in ON_GPU:
            spans.append((float(event["ts"]), float(event["ts"]) + lasted))
            names[name[:80]] += lasted
        elif kind in ("cuda_runtime", "cuda_driver"):
            calls[name] += 1
            waits += lasted if name in WAITS else 0.0
    if not spans:
        raise RuntimeError("nothing ran on the GPU within the trace")
    busy = _union(spans)
    whole = max(end for _, end in spans) - min(start for start, _ in spans)
    return {
        "steps": steps,
        "step_ms": round(whole / steps / 1e3, 3),
        "gpu_ms": round(busy / steps / 1e3, 3),
        "idle_ms": round((whole - busy) / steps / 1e3, 3),
        "waits_ms": round(waits / steps / 1e3, 3),
        "graph_launches": round(calls["cudaGraphLaunch"] / steps, 1),
        "kernel_launches": round(
            sum(count for name, count in calls.items() if "LaunchKernel" in name) / steps, 1
        ),
        "copies": round(sum(count for name, count in calls.items() if "Memcpy" in name) / steps, 1),
        "syncs": round(sum(calls[name] for name in WAITS) / steps, 1),
        "top": [
            [name, round(spent / steps / 1e3, 3)]
            for name, spent in sorted(names.items(), key=lambda each: -each[1])[:TOP]
        ],
    }


def _union(spans: list[tuple[float, float]]) -> float:
    covered, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return covered
