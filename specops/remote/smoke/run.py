"""The run of all checks: order, time limits, one repeat of what stayed open, the timeline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from . import s0, s1, s2, s3, s4, s5, s6, s7
from .ask import Unanswered, complete
from .bench import Bench
from .load import Client, Timeout
from .observe import Observer
from .signals import read_signals
from .spec import TITLES, Spec
from .timeline import draw
from .verdict import ERROR, FAIL, INCONCLUSIVE, PASS, Judged, Verdict, error, failed, inconclusive, worst

Json = Any
Emit = Callable[[dict[str, Json]], None]
Check = Callable[[Bench], Awaitable[Verdict]]
CHECKS: dict[str, Check] = {
    "S0": s0.check,
    "S1": s1.check,
    "S2": s2.check,
    "S3": s3.check,
    "S4": s4.check,
    "S5": s5.check,
    "S6": s6.check,
    "S7": s7.check,
}
LONGER = 3
PAUSE_S = 1.0
"""Before an open check is repeated."""


async def run_smoke(spec: Spec, emit: Emit) -> dict[str, Json]:
    """Stops at the first fail or error. The result of ARCHITECTURE, SmokeSpec and its result."""
    deadline = time.monotonic() + spec.budget_s
    results: list[dict[str, Json]] = []
    async with Client(spec) as client:
        try:
            spec = await complete(spec, client)
        except Unanswered as why:
            return {"verdict": ERROR, "checks": [], "timeline": {}, "summary": str(why), "unanswered": True}
        signals = read_signals(spec.release, spec.gate)
        observer = Observer(spec=spec, client=client, signals=signals)
        async with observer:
            bench = Bench(spec=spec, client=client, observer=observer, signals=signals)
            for name in spec.checks:
                result = await _run_check(name, bench, deadline, emit)
                results.append(result)
                emit({"event": "check", **result})
                if result["verdict"] not in (PASS, INCONCLUSIVE) or _stops(result, spec):
                    break
        timeline = draw(bench)
    return {"verdict": worst([r["verdict"] for r in results]), "checks": results, "timeline": timeline}


def _stops(result: dict[str, Json], spec: Spec) -> bool:
    """Others on the server make every later reading worthless, unless that was agreed to."""
    return "foreign traffic" in result["summary"] and not spec.shared


async def _run_check(name: str, bench: Bench, deadline: float, emit: Emit) -> dict[str, Json]:
    emit({"event": "check_started", "id": name, "title": TITLES[name]})
    started = time.monotonic()
    verdict = await _judge(name, bench, deadline)
    repeated: dict[str, Json] = {}
    if verdict.verdict == INCONCLUSIVE and time.monotonic() < deadline:
        await asyncio.sleep(PAUSE_S)
        repeated = {"first_try": verdict.summary}
        bench.stretch = LONGER
        verdict = await _judge(name, bench, deadline)
    bench.stretch = 1
    return {
        "id": name,
        "title": TITLES[name],
        "verdict": verdict.verdict,
        "summary": verdict.summary,
        "evidence": {**verdict.evidence, **repeated},
        "seconds": round(time.monotonic() - started, 2),
    }


async def _judge(name: str, bench: Bench, deadline: float) -> Verdict:
    check = CHECKS.get(name)
    if check is None:
        return inconclusive("this agent does not know the check")
    left = deadline - time.monotonic()
    if left <= 0:
        return inconclusive(f"the budget of {bench.spec.budget_s:.0f} s is used up")
    before = (await bench.observer.count_finished(), bench.client.finished)
    try:
        return await _heed_foreign(await asyncio.wait_for(check(bench), left), bench, before)
    except Judged as judged:
        return await _name_cause(judged.verdict, bench)
    except Timeout:
        return inconclusive(f"the budget of {bench.spec.budget_s:.0f} s was used up within it")
    except Exception as problem:
        return error(f"the check itself broke: {type(problem).__name__}: {problem}")


async def _name_cause(verdict: Verdict, bench: Bench) -> Verdict:
    """Requests only tell that they broke off; why, the server's log tells."""
    cause = await bench.observer.root_cause() if verdict.verdict == FAIL else ""
    if not cause or cause in verdict.summary:
        return verdict
    return failed(f"{verdict.summary}; the server's log: {cause}", **{**verdict.evidence, "cause": cause})


async def _heed_foreign(verdict: Verdict, bench: Bench, before: tuple[int | None, int]) -> Verdict:
    """Requests that ended during the check and were not ours make a pass worth nothing."""
    if verdict.verdict == FAIL or bench.spec.shared:
        return verdict
    now, (then, ours) = await bench.observer.count_finished(), before
    if then is None or now is None:
        return verdict
    strange = now - then - (bench.client.finished - ours)
    if strange <= 0:
        return verdict
    return inconclusive(
        f"foreign traffic: {strange} requests ended here meanwhile that are not ours (--shared goes on)",
        **verdict.evidence,
    )
