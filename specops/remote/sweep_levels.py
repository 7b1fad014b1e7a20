"""Levels of a sweep: C workers in a closed loop, and what makes a level's figures doubtful."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from .smoke.load import Client, Stream
from .smoke.observe import Observer
from .smoke.signals import read_signals
from .smoke.spec import Spec
from .smoke.verdict import Judged

Json = Any
Emit = Callable[[dict[str, Json]], None]
WARM_UP_TOKENS = 32
POLL_S = 0.5
"""Looks at the server cost it something: seldom, where speed is measured."""
LAG_S = 0.02
LAG_LIMIT_S = 0.1
"""An event loop later than this was itself the bottleneck: the client limited the level."""
FILLED = 0.9
"""Share of C that must have run at once, by the server's own gauge."""


async def run_levels(
    spec: Spec, levels: list[int], *, requests: int, max_tokens: int, emit: Emit
) -> tuple[list[dict[str, Json]], str]:
    """(level events, `finished` or why it ended early)."""
    found: list[dict[str, Json]] = []
    async with Client(spec) as client:
        observer = Observer(
            spec=spec, client=client, signals=read_signals(spec.release, spec.gate), poll_s=POLL_S
        )
        async with observer:
            for level in levels:
                await _warm_up(client, spec, level)
                event = await _run_level(
                    client, observer, level, count=max(level, requests), max_tokens=max_tokens
                )
                if event["ok"] == 0:
                    return found, f"C={level}: no request was answered: {event['errors'][:1]}"
                found.append(event)
                emit(event)
    return found, "finished"


async def _warm_up(client: Client, spec: Spec, level: int) -> None:
    pairs = [client.start(spec.prompts[i % len(spec.prompts)], WARM_UP_TOKENS) for i in range(level)]
    try:
        await client.wait(task for _, task in pairs)
    except Judged:
        return  # the level itself shows the hang


async def _run_level(
    client: Client, observer: Observer, level: int, *, count: int, max_tokens: int
) -> dict[str, Json]:
    started = time.monotonic()
    done: list[Stream] = []
    todo = iter(range(count))
    prompts = client.spec.prompts

    async def work() -> None:
        for number in todo:
            text = f"{prompts[number % len(prompts)]}\n(request {number} of level {level})"
            stream, task = client.start(text, max_tokens)
            done.append(stream)
            await task

    lag = Lag()
    measuring = asyncio.ensure_future(lag.measure())
    workers = [asyncio.ensure_future(work()) for _ in range(level)]
    ended = ""
    try:
        await client.wait(workers)
    except Judged as judged:
        ended = judged.verdict.summary
    measuring.cancel()
    return _describe(observer, level, count, done, started, lag.worst_s, ended)


class Lag:
    """The event loop's worst lateness: a busy client would measure itself."""

    worst_s = 0.0

    async def measure(self) -> None:
        """Until cancelled."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(LAG_S)
            self.worst_s = max(self.worst_s, time.monotonic() - before - LAG_S)


def _describe(
    observer: Observer,
    level: int,
    count: int,
    done: list[Stream],
    started: float,
    lag_s: float,
    ended: str,
) -> dict[str, Json]:
    good = [stream for stream in done if not stream.problem and stream.ended is not None]
    latencies = sorted((stream.ended or 0.0) - stream.started for stream in good)
    wall_s = max((stream.ended or 0.0 for stream in good), default=started) - started
    tokens = sum(stream.tokens for stream in good)
    throughput = tokens / wall_s if wall_s > 0 else 0.0
    rates = [stream.tokens / max(1e-9, (stream.ended or 0.0) - stream.started) for stream in good]
    per_req = sum(rates) / len(rates) if rates else 0.0
    latency = {
        "avg": sum(latencies) / len(latencies) if latencies else 0.0,
        "p50": percentile(latencies, 50),
        "p99": percentile(latencies, 99),
    }
    event: dict[str, Json] = {"event": "level", "C": level, "requests": count, "ok": len(good)}
    event |= {"throughput": throughput, "per_req": per_req, "latency": latency, "tokens": tokens}
    event |= {"wall_s": wall_s, "errors": [s.problem for s in done if s.problem][:5], "lag_s": lag_s}
    event["taints"] = _taints(observer, level, event, started, ended)
    event["line"] = format_level(event)
    return event


def _taints(observer: Observer, level: int, event: dict[str, Json], started: float, ended: str) -> list[str]:
    samples = [sample for sample in observer.samples if sample.at >= started]
    decodes = [line for line in observer.decodes if line.at >= started]
    running = [s.running for s in samples if s.running is not None] + [d.running for d in decodes]
    taints = [ended] if ended else []
    if event["ok"] < event["requests"]:
        taints.append(f"errors: {event['requests'] - event['ok']}")
    if max((s.retracted for s in samples if s.retracted), default=0):
        taints.append("retraction")
    if sum(1 for s in samples if s.queue) > len(samples) // 4:
        taints.append("queueing")
    if any(line.graph is False for line in decodes) and observer.spec.graphs:
        taints.append("graph off")
    if running and max(running) > level:
        taints.append(f"foreign traffic: {max(running)} ran")
    if running and max(running) < FILLED * level:
        taints.append(f"observed batch {max(running)}")
    if event["lag_s"] > LAG_LIMIT_S:
        taints.append("client_limited")
    return taints


def percentile(ordered: list[float], percent: float) -> float:
    """Nearest rank; 0 for an empty list."""
    if not ordered:
        return 0.0
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]


def format_level(event: dict[str, Json]) -> str:
    latency = event["latency"]
    times = f"{latency['avg']:6.1f}/{latency['p50']:6.1f}/{latency['p99']:6.1f}s"
    return (
        f"C={event['C']:3d} | {event['requests']:d} requests | throughput: {event['throughput']:7.1f} tok/s"
        f" | per-req: {event['per_req']:6.1f} tok/s | latency avg/p50/p99: {times}"
        f" | ok: {event['ok']}/{event['requests']}"
    )
