"""Open or closed: what a level's windows and the gate's own word say together. Neither is enough alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from .bench import Level, reached
from .verdict import Verdict, failed, inconclusive, passed
from .windows import Window

FEW_HIDDEN = 0.6
"""More merged chunks than this share of the steps leave nothing to be read off a stream."""


def judge_open(level: Level, windows: Sequence[Window], wanted: int, asked: int) -> Verdict:
    """Speculating: the floor <= tokens a step, and the gate says open all along."""
    spec = level.bench.spec
    evidence = level.evidence(windows)
    if len(windows) < wanted:
        return inconclusive(
            f"C={asked}: {len(windows)} of {wanted} windows of {level.bench.span} steps", **evidence
        )
    lack = reached(level, windows, asked)
    if lack is not None:
        return lack
    words = set(level.words(windows))
    if spec.gated and not words:
        return inconclusive(f"C={asked}: the server does not say in which state its gate is", **evidence)
    rates = [level.rate(window) for window in windows]
    if spec.gated and "closed" in words:
        flaps = " at times" if "open" in words else ""
        return failed(f"C={asked}: the gate is closed{flaps} (tokens a step {show(rates)})", **evidence)
    if min(rates) < spec.open_floor:
        return failed(
            f"C={asked}: {min(rates):.2f} tokens a step, below the floor {spec.open_floor}", **evidence
        )
    impossible = [
        s.tokens
        for s in level.streams
        if (s.meta.get("spec_verify_ct") or s.tokens) * spec.longest < s.tokens - 1
    ]
    if impossible and level.bench.signals.verifies_while_closed:
        return failed(f"C={asked}: more tokens than {spec.longest} a verify, so the counters lie", **evidence)
    return passed(f"C={asked}: {show(rates)} tokens a step, open", **evidence)


def judge_closed(level: Level, windows: Sequence[Window], wanted: int, asked: int) -> Verdict:
    """Exactly one token a step for each request, and the gate says closed all along."""
    evidence = level.evidence(windows)
    logged = logged_drafts(level, asked)
    if level.bench.spec.gated and logged is not None:
        return failed(
            f"C={asked}: still speculating, {logged:.2f} tokens a step by the server's own log", **evidence
        )
    if len(windows) < wanted:
        return inconclusive(
            f"C={asked}: {len(windows)} of {wanted} windows of {level.bench.span} steps", **evidence
        )
    lack = reached(level, windows, asked)
    if lack is not None:
        return lack
    drafted = _drafted(level, windows)
    if isinstance(drafted, Verdict):
        return drafted
    words = set(level.words(windows))
    rates = [level.rate(window) for window in windows]
    if drafted:
        return failed(
            f"C={asked}: {drafted} of {len(level.streams)} requests still speculate "
            f"({show(rates)} tokens a step)",
            **evidence,
        )
    if not words:
        return inconclusive(f"C={asked}: the server does not say in which state its gate is", **evidence)
    if "open" in words:
        return failed(
            f"C={asked}: one token a step, but the gate says open: it drafts and throws away", **evidence
        )
    # What merged chunks made look like more is explained: these are the rates.
    evidence["tokens_per_step"] = [[1.0] * len(level.streams) for _ in windows]
    evidence["steps"] = [[c.tokens for c in level.counts(window)] for window in windows]
    return passed(f"C={asked}: 1.00 tokens a step for each request, closed", **evidence)


def logged_drafts(level: Level, asked: int) -> float | None:
    """Tokens a step of a log interval that began and ended with `asked` or more running; None if all plain.

    Needs no windows: it holds where requests that draft are over before the last one has joined.
    """
    start = min(stream.started for stream in level.streams)
    end = max(stream.moved for stream in level.streams)
    lines = [line for line in level.bench.observer.decodes if start < line.at <= end]
    for before, line in pairwise(lines):
        full = min(before.running, line.running) >= asked
        if full and line.accept is not None and line.accept >= level.bench.spec.open_floor:
            return line.accept
    return None


def _drafted(level: Level, windows: Sequence[Window]) -> int | Verdict:
    """Requests with more than one token in a step of these windows.

    A busy server merges chunks, and two plain steps then look like one of two tokens. The request's
    final counters tell how many steps were hidden so; only tokens that these do not explain count.
    """
    found = 0
    for index, steps in enumerate(level.steps_of):
        counts = [level.counts(window)[index] for window in windows]
        excess = sum(c.excess for c in counts)
        if excess <= 0:
            continue
        hidden = level.hidden()[index]
        if hidden is None or hidden < excess:
            found += 1
        elif hidden > FEW_HIDDEN * max(1, sum(step.tokens for step in steps)):
            return inconclusive(
                f"{hidden} steps came merged with others: this machine is too busy to read a stream",
                **level.evidence(windows),
            )
    return found


def judge_served(level: Level, asked: int) -> Verdict:
    """Without a gate there is nothing on either side of it: only that every request was answered."""
    return passed(f"C={asked}: every request answered; there is no gate to prove")


def show(rates: Sequence[float]) -> str:
    low, high = min(rates), max(rates)
    return f"{low:.2f}" if high - low < 0.005 else f"{low:.2f} to {high:.2f}"
