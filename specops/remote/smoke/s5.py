"""S5: two more crossings by a single request, and a flap at T / T+1: alive, every request whole."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

from .bench import Bench, Level
from .judge import judge_closed
from .load import Stream
from .verdict import PASS, Judged, Verdict, inconclusive, passed

Json = Any
CROSSINGS = 2
FLAPS = 6
FLAP_TOKENS = 6
BETWEEN_STEPS = 8
SLACK_TOKENS = 240


async def check(bench: Bench) -> Verdict:
    spec = bench.spec
    if not spec.gated:
        return passed("there is no gate to cross")
    between = BETWEEN_STEPS * spec.longest
    visit = bench.closed_tokens(1)
    stay = CROSSINGS * (visit + between) + FLAPS * (FLAP_TOKENS + between) + SLACK_TOKENS
    before, since = len(bench.observer.bad_lines), count_switches(bench)
    samples = len(bench.observer.samples)
    pairs = [bench.client.start(bench.prompt(), stay) for _ in range(spec.threshold)]
    base = [stream for stream, _ in pairs]
    visitors = await _visit(bench, base, [visit] * CROSSINGS + [FLAP_TOKENS] * FLAPS, between)
    await bench.client.wait(task for _, task in pairs)
    bench.mark("S5", [*base, *visitors])
    bench.require_answers([*base, *visitors], before)
    if any(visitor.moved > min(stream.moved for stream in base) for visitor in visitors[:CROSSINGS]):
        raise Judged(inconclusive("the long requests ended before the crossings were over"))
    for number, visitor in enumerate(visitors[:CROSSINGS], 1):
        level = Level(bench=bench, streams=[visitor])
        verdict = judge_closed(level, level.closed_windows(1), 1, spec.threshold + 1)
        if verdict.verdict != PASS:
            return Verdict(verdict.verdict, f"crossing {number}: {verdict.summary}", verdict.evidence)
    now = count_switches(bench)
    seen = now - since if now is not None and since is not None else sampled_switches(bench, samples)
    evidence: dict[str, Json] = {"crossings": CROSSINGS, "flaps": FLAPS, "switches": seen}
    return passed(
        f"{CROSSINGS} crossings and a flap at T/T+1, {seen} switches, every request whole", **evidence
    )


async def _visit(bench: Bench, base: list[Stream], visits: list[int], between: int) -> list[Stream]:
    """One after the other, each once all of `base` has gone on by `between` tokens."""
    visitors = []
    for tokens in visits:
        goals = [(stream, stream.tokens + between) for stream in base]
        while any(stream.ended is None and stream.tokens < goal for stream, goal in goals):
            await asyncio.sleep(0.005)
            bench.client.heed_hang()
        visitor, task = bench.client.start(bench.prompt(), tokens)
        visitors.append(visitor)
        await bench.client.wait([task])
    return visitors


def count_switches(bench: Bench) -> int | None:
    """So far, exactly: by the patched gate's own count, or by the log; None where neither can be read."""
    gate = bench.observer.internal.get("speculative_gate")
    if bench.spec.gate == "batch-gate" and isinstance(gate, dict) and isinstance(gate.get("switches"), int):
        return int(gate["switches"])
    if bench.spec.gate == "native" and bench.observer.log_read:
        return len(bench.observer.switches)
    return None


def sampled_switches(bench: Bench, first: int) -> int:
    """What the samples since `first` caught: at least so many."""
    states = [s.state for s in bench.observer.samples[first:] if s.state is not None]
    return sum(1 for a, b in pairwise(states) if a != b)
