"""S6: quiet again: nothing runs, nothing leaked, and S1 once more as before."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from .bench import Bench
from .s1 import hold_one
from .verdict import PASS, Judged, Verdict, failed, inconclusive, passed

Json = Any
QUIET_S = 10.0
ANSWER_S = 20.0
LOOK_S = 1.2
"""SGLang checks its pools when it idles; a leak shows within a second."""
NOISE = 0.8


async def check(bench: Bench) -> Verdict:
    before = len(bench.observer.bad_lines)
    try:
        quiet = await settle_down(bench, before)
    except Judged as judged:
        return judged.verdict
    again = await hold_one(bench, "S6", bench.spec.prompts[0])
    if again.verdict != PASS:
        return Verdict(again.verdict, f"S1 again: {again.summary}", again.evidence)
    rates = [rate for window in again.evidence.get("tokens_per_step") or () for rate in window]
    rate, first = sum(rates) / max(1, len(rates)), bench.baseline.get("rate")
    evidence = {"quiet": quiet, "again": again.evidence, "first_rate": first}
    if first and rate < NOISE * first:
        return failed(f"S1 again gives {rate:.2f} tokens a step, {first:.2f} before", **evidence)
    if not bench.observer.log_read and quiet.get("used_tokens") is None:
        return inconclusive("leaks cannot be seen: no log to read, no KV usage reported", **evidence)
    return passed("nothing runs, nothing leaked, S1 as before", **evidence)


async def settle_down(bench: Bench, bad_before: int) -> dict[str, Json]:
    """Wait until nothing of ours runs. Raises Judged: a fail if the log or the pool shows a leak."""
    until = time.monotonic() + QUIET_S
    load = await read_load(bench)
    while load and load.get("running") and time.monotonic() < until:
        await asyncio.sleep(0.1)
        load = await read_load(bench)
    idle_until = time.monotonic() + LOOK_S
    while time.monotonic() < idle_until:
        await asyncio.sleep(0.1)
        bench.observer.read_log()
        bad = bench.observer.bad_lines[bad_before:]
        if bad:
            raise Judged(failed(f"the server's log has: {bad[0]}", log=bad[:8]))
    load = await read_load(bench)
    if load is None:
        if not await bench.client.get_json(bench.signals.info_path, ANSWER_S):
            raise Judged(failed("the server answers no more after the load"))
        return {}
    if load.get("running") and not bench.spec.shared:
        raise Judged(
            inconclusive(f"foreign traffic: {load['running']} requests run that are not ours", **load)
        )
    used = load.get("used_tokens")
    if used and not load.get("running"):
        raise Judged(failed(f"{used} KV tokens are held by no request: they leak", **load))
    return load


async def read_load(bench: Bench) -> dict[str, Json] | None:
    """{running, waiting, used_tokens}, live; None where the server has no such page."""
    answer = await bench.client.get_json("/v1/loads?include=core")
    loads = answer.get("loads") if isinstance(answer, dict) else None
    if isinstance(loads, list) and loads:
        return {
            "running": sum(int(load.get("num_running_reqs") or 0) for load in loads),
            "waiting": sum(int(load.get("num_waiting_reqs") or 0) for load in loads),
            "used_tokens": _sum(loads, "num_used_tokens") if bench.signals.used_without_cache else None,
        }
    answer = await bench.client.get_json("/get_load")
    if isinstance(answer, list) and answer:
        return {
            "running": sum(int(load.get("num_reqs") or 0) for load in answer),
            "waiting": sum(int(load.get("num_waiting_reqs") or 0) for load in answer),
            "used_tokens": None,
        }
    return None


def _sum(loads: list[dict[str, Json]], name: str) -> int | None:
    values = [load[name] for load in loads if isinstance(load.get(name), int)]
    return sum(values) if values else None
