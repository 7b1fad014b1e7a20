"""S3: above the threshold, for longer than the server's log interval, and then quiet without a leak."""

from __future__ import annotations

from typing import Any

from .bench import Bench
from .judge import judge_closed, judge_served
from .s6 import settle_down
from .verdict import PASS, Judged, Verdict, failed, passed

Json = Any
WINDOWS = 2
SITE_STEPS = 12
FIRST, LATER_TOKENS = 2, 12
"""So many requests end first, the others so much later: the batch shrinks while it is still above T."""


async def check(bench: Bench) -> Verdict:
    evidence: dict[str, Json] = {}
    if 1 < bench.spec.longest <= bench.spec.threshold:
        # As many requests as draft tokens: shapes that are mixed up fit or clash just here.
        await bench.hold("S3", [SITE_STEPS * bench.spec.longest] * bench.spec.longest)
    for size in (bench.spec.threshold + 1, bench.spec.threshold + 5):
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
    sizes = f"C={bench.spec.threshold + 1} and C={bench.spec.threshold + 5}"
    what = "closed, 1.00 tokens a step, all answered" if bench.spec.gated else "all answered"
    return passed(f"{sizes}: {what}", **evidence)
