"""S4: long requests live through a closed stretch; their acceptance after it is what it would have been.

Draft state that went stale while closed leaves every word right and acceptance near one: only the same
tokens, drafted without the interruption, show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .bench import Bench, Level
from .load import Stream
from .verdict import Judged, Verdict, failed, inconclusive, passed
from .windows import Count, Step, Window, count

Json = Any
VICTIMS = 3
BEFORE_TOKENS = 60
GAP_STEPS = 100
"""Shorter gaps leave acceptance high enough to pass."""
AFTER_TOKENS = 50
"""Stale KV heals out of sight after about 100."""
STARTS = (0, 25)
"""Tokens after the company left at which a window may begin: a hysteresis or late chunks add one-token
steps there. Stale state still shows clearly in a window that begins at 25."""
SLACK_TOKENS = 200
"""Written while this client looks away."""
CLOSED_RATE = 1.2


async def check(bench: Bench) -> Verdict:
    if not bench.spec.gated:
        return passed("there is no gate, so nothing re-enters")
    if bench.spec.simulated:
        return inconclusive("acceptance is simulated (SGLANG_SIMULATE_ACC_LEN): it cannot collapse")
    size = min(VICTIMS, bench.spec.threshold)
    prompts = [bench.prompt() for _ in range(size)]
    victims, joiners = await cross(bench, prompts)
    left = max(joiner.moved for joiner in joiners)
    joined = max(joiner.chunks[0].at for joiner in joiners)
    closed = _gap_problem(bench, victims, Window(joined, left))
    if closed is not None:
        return closed
    alone = (await bench.hold("S4", [victims[0].asked] * size, prompts)).streams
    return compare(bench, victims, alone, left)


async def cross(bench: Bench, prompts: Sequence[str]) -> tuple[list[Stream], list[Stream]]:
    """(victims, joiners): the joiners lift the batch above T for the gap, then leave. Raises Judged."""
    spec = bench.spec
    gap = max(GAP_STEPS, bench.settle + 2 * bench.span)
    join = bench.ramp + gap
    tokens = BEFORE_TOKENS + SLACK_TOKENS + join + 2 * AFTER_TOKENS + STARTS[-1]
    before = len(bench.observer.bad_lines)
    pairs = [bench.client.start(prompt, tokens) for prompt in prompts]
    victims, tasks = [stream for stream, _ in pairs], [task for _, task in pairs]
    await bench.client.until(victims, BEFORE_TOKENS)
    more = [bench.client.start(bench.prompt(), join) for _ in range(spec.threshold + 5 - len(prompts))]
    joiners = [stream for stream, _ in more]
    await bench.client.wait([*tasks, *(task for _, task in more)])
    bench.mark("S4", [*victims, *joiners])
    bench.require_answers([*victims, *joiners], before)
    if any(v.moved < max(j.moved for j in joiners) for v in victims):
        raise Judged(inconclusive("the long requests ended before their company did"))
    return victims, joiners


def _gap_problem(bench: Bench, victims: list[Stream], gap: Window) -> Verdict | None:
    level = Level(bench=bench, streams=victims, whole=gap)
    windows = level.closed_windows(2)
    if len(windows) < 2:
        return inconclusive("the closed stretch was too short to call it one", **level.evidence(windows))
    rate = min(level.rate(window) for window in windows)
    hidden = max((value or 0 for value in level.hidden()), default=0)
    if rate >= CLOSED_RATE and hidden < AFTER_TOKENS // 2:
        return failed(
            f"the gate did not close when the batch went above T ({rate:.2f} tokens a step)",
            **level.evidence(windows),
        )
    return None


def compare(bench: Bench, victims: list[Stream], alone: list[Stream], left: float) -> Verdict:
    pairs, same_text = [], True
    for victim, reference in zip(victims, alone, strict=True):
        steps, same = bench.steps(victim), bench.steps(reference)
        bench.victims.append({"points": points(steps), "uninterrupted": points_beside(steps, same)})
        first = next((step.total - step.tokens for step in steps if step.at > left), None)
        if first is None or first + STARTS[-1] + AFTER_TOKENS > victim.tokens:
            return inconclusive("too few tokens came after the closed stretch")
        pairs.append(best_pair(steps, same, first))
        last = first + STARTS[-1] + AFTER_TOKENS
        same_text &= victim.ids[:last] == reference.ids[:last]
    ratios = [_ratio(after, same) for after, same in pairs]
    pooled = _ratio(_sum(after for after, _ in pairs), _sum(same for _, same in pairs))
    evidence: dict[str, Json] = {
        "after": [after.rate for after, _ in pairs],
        "uninterrupted": [same.rate for _, same in pairs],
        "ratios": ratios,
        "pooled": pooled,
        "same_text": same_text,
        "tokens": AFTER_TOKENS,
    }
    # Other words have another acceptance: single answers are comparable only where the text is the same.
    ratio = min(ratios) if same_text else pooled
    words = f"{ratio:.2f} of the uninterrupted acceptance ({min(a.rate for a, _ in pairs):.2f} tokens a step)"
    if ratio < bench.spec.reentry_floor:
        return failed(
            f"after a closed stretch {words}, below {bench.spec.reentry_floor}: draft state is stale",
            **evidence,
        )
    return passed(f"after a closed stretch {words}", **evidence)


def best_pair(steps: Sequence[Step], reference: Sequence[Step], first: int) -> tuple[Count, Count]:
    """(after, uninterrupted) over the same token offsets, of the windows that may be the first open one."""
    pairs = [
        (rate_at(steps, start, start + AFTER_TOKENS), rate_at(reference, start, start + AFTER_TOKENS))
        for start in (first + skip for skip in STARTS)
    ]
    return max(pairs, key=lambda pair: _ratio(*pair))


def rate_at(steps: Sequence[Step], first: int, last: int) -> Count:
    """Between two token offsets of the answer."""
    inside = [step for step in steps if first < step.total <= last]
    return Count(sum(step.tokens for step in inside), sum(step.steps for step in inside))


def points(steps: Sequence[Step], bundle: int = 10) -> list[list[float]]:
    """[monotonic seconds, tokens a step] for each `bundle` steps."""
    found = []
    for index in range(0, len(steps), bundle):
        part = steps[index : index + bundle]
        found.append([part[-1].at, count(part, Window(part[0].at - 1, part[-1].at)).rate])
    return found


def points_beside(steps: Sequence[Step], reference: Sequence[Step], bundle: int = 10) -> list[list[float]]:
    """As `points`, at the same times, with the reference's tokens a step over the same token offsets."""
    found = []
    for index in range(0, len(steps), bundle):
        part = steps[index : index + bundle]
        rate = rate_at(reference, part[0].total - part[0].tokens, part[-1].total).rate
        if rate:
            found.append([part[-1].at, rate])
    return found


def _sum(counts: Any) -> Count:
    parts = list(counts)
    return Count(sum(part.tokens for part in parts), sum(part.steps for part in parts))


def _ratio(after: Count, same: Count) -> float:
    return round(after.rate / same.rate, 3) if same.rate else 0.0
