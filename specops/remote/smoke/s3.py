"""S3: above the threshold, for longer than the server's log interval, and then quiet without a leak."""

from __future__ import annotations

from typing import Any

from .bench import Bench
from .judge import judge_closed, judge_served
from .s0 import read_capacity
from .s6 import settle_down
from .verdict import PASS, Judged, Verdict, failed, passed

Json = Any
WINDOWS = 2
SITE_STEPS = 12
FIRST, LATER_TOKENS = 2, 12
"""So many requests end first, the others so much later: the batch shrinks while it is still above T."""


async def check(bench: Bench) -> Verdict:
    evidence: dict[str, Json] = {}
    threshold, drafts = bench.spec.threshold, bench.draft_tokens
    if 1 < drafts <= threshold:
        # As many requests as draft tokens: shapes that are mixed up fit or clash just here.
        await bench.hold("S3", [SITE_STEPS * bench.spec.longest] * drafts)
    visited = sizes_above(threshold, drafts, read_capacity(bench))
    for size in visited:
        before = len(bench.observer.bad_lines)
        whole = bench.closed_tokens(WINDOWS)
        level = await bench.hold("S3", [whole] * FIRST + [whole + LATER_TOKENS] * (size - FIRST))
        verdict = judge_served(level, size)
        if bench.spec.gated:
            verdict = judge_closed(level, level.closed_windows(WINDOWS), WINDOWS, size)
        if verdict.verdict != PASS:
            return verdict
        evidence[f"C={size}"] = verdict.evidence
        try:
            await settle_down(bench, before)
        except Judged as judged:
            return failed(f"after C={size}: {judged.verdict.summary}", **judged.verdict.evidence)
    sizes = " and ".join(f"C={size}" for size in visited)
    what = "closed, 1.00 tokens a step, all answered" if bench.spec.gated else "all answered"
    return passed(f"{sizes}: {what}", **evidence)


def sizes_above(threshold: int, drafts: int, capacity: int | None) -> list[int]:
    """T+1, T+5, and the number of draft tokens where it is another batch that this server can run."""
    sizes = [threshold + 1, threshold + 5]
    if drafts > threshold and drafts not in sizes and (capacity is None or drafts <= capacity):
        sizes.append(drafts)
    return sizes
