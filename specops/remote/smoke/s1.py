"""S1: one request, three windows: open, and on a captured graph where there are graphs."""

from __future__ import annotations

from .bench import Bench
from .judge import judge_open
from .verdict import PASS, Verdict, failed, inconclusive, passed

WINDOWS = 3


async def check(bench: Bench) -> Verdict:
    verdict = await hold_one(bench, "S1", bench.spec.prompts[0])
    if verdict.verdict == PASS:
        rates = [rate for window in verdict.evidence.get("tokens_per_step") or () for rate in window]
        if rates:
            bench.baseline["rate"] = sum(rates) / len(rates)
    return verdict


async def hold_one(bench: Bench, name: str, prompt: str) -> Verdict:
    spec = bench.spec
    level = await bench.hold(name, [bench.open_tokens(WINDOWS)], [prompt])
    if spec.num_steps == 0:
        return passed("C=1: answered; the server does not speculate")
    if spec.simulated:
        return inconclusive("C=1: acceptance is simulated (SGLANG_SIMULATE_ACC_LEN), so it proves nothing")
    windows = level.windows(WINDOWS)
    verdict = judge_open(level, windows, WINDOWS, 1)
    graph = verdict.evidence.get("graph") or []
    if verdict.verdict != PASS or not spec.graphs:
        return verdict
    if not graph:
        return inconclusive(
            "C=1: open, but neither the log nor a metric says whether a graph was used", **verdict.evidence
        )
    if "False" in graph:
        return failed("C=1: decoded without the captured graph", **verdict.evidence)
    return verdict
