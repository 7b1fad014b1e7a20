"""S2: a batch of T, entered from below and from above."""

from __future__ import annotations

from .bench import HYSTERESIS_STEPS, Bench, Level
from .judge import judge_open, judge_served
from .verdict import PASS, Verdict, passed
from .windows import Window

WINDOWS = 2


async def check(bench: Bench) -> Verdict:
    size = bench.spec.threshold
    level = await bench.hold("S2", [bench.open_tokens(WINDOWS)] * size)
    if not bench.spec.gated:
        return judge_served(level, size)
    below = judge_open(level, level.windows(WINDOWS), WINDOWS, size)
    if below.verdict != PASS:
        return Verdict(below.verdict, f"from below, {below.summary}", below.evidence)
    above = await from_above(bench, size)
    if above.verdict != PASS:
        return Verdict(above.verdict, f"from above, {above.summary}", above.evidence)
    return passed(f"{below.summary}; from above as well", below=below.evidence, above=above.evidence)


async def from_above(bench: Bench, size: int) -> Verdict:
    """One request more than T for a while; when it has gone, the others are a batch of T again."""
    visit = bench.closed_tokens(0)
    stay = visit + bench.open_tokens(WINDOWS, HYSTERESIS_STEPS)
    all_of = await bench.hold("S2", [visit] + [stay] * size)
    visitor, stayers = all_of.streams[0], all_of.streams[1:]
    whole = Window(visitor.moved, min(stream.moved for stream in stayers))
    level = Level(bench=bench, streams=stayers, whole=whole)
    windows = level.windows(WINDOWS, bench.settle + HYSTERESIS_STEPS)
    return judge_open(level, windows, WINDOWS, size)
