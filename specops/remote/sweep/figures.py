"""Figures of a level from its answers: throughput in the steady window, latencies by request and token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .answer import Answer

Json = Any
PERCENTS = (50, 90, 99)


@dataclass(frozen=True)
class Span:
    """Of monotonic time, seconds."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def holds(self, moment: float) -> bool:
        return self.start <= moment <= self.end


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Nearest rank; 0 for an empty list."""
    if not ordered:
        return 0.0
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]


def spread(values: Sequence[float]) -> dict[str, float]:
    """{avg, p50, p90, p99}."""
    ordered = sorted(values)
    average = sum(ordered) / len(ordered) if ordered else 0.0
    return {"avg": average, **{f"p{p}": percentile(ordered, p) for p in PERCENTS}}


def weighted_spread(pairs: Sequence[tuple[float, int]]) -> dict[str, float]:
    """As `spread`, of values that stand for so many tokens each."""
    ordered = sorted(pairs)
    total = sum(weight for _, weight in ordered)
    found = {"avg": sum(value * weight for value, weight in ordered) / total if total else 0.0}
    for percent in PERCENTS:
        wanted, seen, chosen = total * percent / 100, 0, 0.0
        for value, weight in ordered:
            seen, chosen = seen + weight, value
            if seen >= wanted:
                break
        found[f"p{percent}"] = chosen
    return found


def compute(answers: Sequence[Answer], counted: Sequence[Answer], span: Span) -> dict[str, Json]:
    """Seconds and tokens a second. `answers`: all of the level; `counted`: those that latencies are about."""
    good = [answer for answer in counted if not answer.problem]
    e2e = [(answer.ended or 0.0) - answer.sent for answer in good]
    tokens = sum(answer.tokens_in(span.start, span.end) for answer in answers)
    rates = [answer.count / max(1e-9, seconds) for answer, seconds in zip(good, e2e, strict=True)]
    long = [answer for answer in good if answer.count > 1]
    return {
        "throughput": tokens / span.seconds if span.seconds > 0 else 0.0,
        "per_req": sum(rates) / len(rates) if rates else 0.0,
        "latency": spread(e2e),
        "ttft": spread([(answer.first or answer.sent) - answer.sent for answer in good]),
        "itl": weighted_spread([gap for answer in answers for gap in answer.gaps(span.start, span.end)]),
        "tpot": spread([(answer.at[-1] - answer.at[0]) / (answer.count - answer.tokens[0]) for answer in long
                        if answer.count > answer.tokens[0]]),
        "tokens": tokens,
        "prompt_tokens": _mean([answer.meta.get("prompt_tokens") for answer in good]),
        "cached_tokens": _mean([_cached(answer) for answer in good]),
        "tokens_per_verify": _tokens_per_verify(good),
    }  # fmt: skip


def _cached(answer: Answer) -> Json:
    details = answer.meta.get("prompt_tokens_details") or {}
    return answer.meta.get("cached_tokens", details.get("cached_tokens"))


def _mean(values: Sequence[Json]) -> float | None:
    numbers = [value for value in values if isinstance(value, (int, float))]
    return sum(numbers) / len(numbers) if numbers else None


def _tokens_per_verify(good: Sequence[Answer]) -> float | None:
    """Over whole requests; the prefill makes the first token. None where the server does not say."""
    known = [
        a for a in good if isinstance(a.meta.get("spec_verify_ct"), int) and a.meta["spec_verify_ct"] > 0
    ]
    verifies = sum(int(answer.meta["spec_verify_ct"]) for answer in known)
    return sum(answer.count - 1 for answer in known) / verifies if verifies else None
