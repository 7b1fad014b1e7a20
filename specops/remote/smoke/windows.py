"""Tokens a step, by differences within a window. Pure functions over streams that have ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .load import Stream
from .signals import Signals


@dataclass(frozen=True)
class Window:
    """Monotonic seconds; a step belongs to it if start < its arrival <= end."""

    start: float
    end: float

    def holds(self, at: float) -> bool:
        return self.start < at <= self.end


@dataclass(frozen=True)
class Step:
    """One chunk: its tokens, and the verify steps that it stands for (more than one if chunks merged)."""

    at: float
    tokens: int
    steps: int
    total: int
    """Completion tokens once it had come."""


@dataclass(frozen=True)
class Count:
    tokens: int
    steps: int

    @property
    def rate(self) -> float:
        """Tokens a step; 0 without steps."""
        return round(self.tokens / self.steps, 3) if self.steps else 0.0

    @property
    def excess(self) -> int:
        """Tokens beyond one a step."""
        return self.tokens - self.steps


def read_steps(stream: Stream, longest: int, verifies_always: bool) -> list[Step]:
    """After the first chunk, which holds the prefill's token.

    Where the release counts verifies in each chunk (and in both states), its count is the steps; else a
    chunk is one step, and one with more than `longest` tokens as many as it takes at least.
    """
    steps = []
    for before, now in zip(stream.chunks, stream.chunks[1:], strict=False):
        tokens = now.tokens - before.tokens
        least = -(-tokens // longest)
        if verifies_always and before.verifies and now.verifies and now.verifies > before.verifies:
            least = now.verifies - before.verifies
        steps.append(Step(now.at, tokens, least, now.tokens))
    return steps


def count(steps: Sequence[Step], window: Window) -> Count:
    inside = [step for step in steps if window.holds(step.at)]
    return Count(sum(step.tokens for step in inside), sum(step.steps for step in inside))


def hidden_steps(stream: Stream, steps: Sequence[Step], signals: Signals) -> int | None:
    """Steps of the whole request that its chunks do not show, because a busy server merged chunks.

    By the request's final counters; None where the release gives none. The last verify may bring tokens
    that are cut off, so this can be a little too small, never too large.
    """
    if not stream.chunks:
        return None
    first = stream.chunks[0].tokens - 1
    seen = sum(step.steps for step in steps) + (1 if first > 0 else 0)
    verifies = stream.meta.get("spec_verify_ct")
    drafts = stream.meta.get(signals.correct_drafts) if signals.correct_drafts else None
    if signals.verifies_while_closed and isinstance(verifies, int):
        return max(0, verifies - seen)
    if isinstance(drafts, int):
        return max(0, stream.tokens - 1 - drafts - seen)
    if isinstance(verifies, int) or not signals.correct_drafts:
        return None
    return max(0, stream.tokens - 1 - seen)


def plateau(streams: Sequence[Stream], steps_of: Sequence[Sequence[Step]], tail: int) -> Window | None:
    """While all of them ran: from the last one's first token to `tail` steps before the first one's end."""
    if not streams or any(len(steps) <= tail for steps in steps_of):
        return None
    start = max(stream.chunks[0].at for stream in streams)
    end = min(_before_end(steps, tail) for steps in steps_of)
    return Window(start, end) if end > start else None


def _before_end(steps: Sequence[Step], tail: int) -> float:
    left = 0
    for step in reversed(steps):
        left += step.steps
        if left > tail:
            return step.at
    return steps[0].at


def cut(
    steps_of: Sequence[Sequence[Step]], whole: Window, *, settle: int, span: int, most: int
) -> list[Window]:
    """Up to `most` windows of at least `span` steps of every request, `settle` steps after `whole` began."""
    windows: list[Window] = []
    start = _after(steps_of, whole, settle)
    while start is not None and len(windows) < most:
        end = _after(steps_of, Window(start, whole.end), span)
        if end is None:
            break
        windows.append(Window(start, end))
        start = end
    return windows


def _after(steps_of: Sequence[Sequence[Step]], whole: Window, wanted: int) -> float | None:
    """When the slowest request had made `wanted` steps within `whole`; None if it never had."""
    latest = whole.start
    for steps in steps_of:
        made = 0
        for step in steps:
            if whole.holds(step.at):
                made += step.steps
                if made >= wanted:
                    latest = max(latest, step.at)
                    break
        if made < wanted:
            return None
    return latest
