"""Bench: one server under test, and levels held on it for a number of windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .load import Client, Stream
from .observe import Observer, Sample
from .signals import Signals
from .spec import Spec
from .verdict import Judged, Verdict, failed, inconclusive
from .windows import Count, Step, Window, count, cut, hidden_steps, plateau, read_steps

Json = Any
DEFAULT_INTERVAL = 40
"""Decode steps between two log lines where the server does not say."""
LATE_STEPS = 16
SPARE = 3
"""Tails of steps that a level is longer than its windows need."""
SPARE_WINDOWS = 1
"""Windows that a closed level is longer than it needs: a starved machine runs its requests far apart."""
RAMP_STEPS = 24
"""Steps that early requests may make before the last one has joined."""
HYSTERESIS_STEPS = 16
"""A gate below its threshold again is open after at most so many steps."""


@dataclass
class Bench:
    spec: Spec
    client: Client
    observer: Observer
    signals: Signals
    baseline: dict[str, float] = field(default_factory=dict)
    """What S1 measured, for S6."""
    marks: list[dict[str, Json]] = field(default_factory=list)
    """Spans for the timeline: {check, C, start, end}."""
    victims: list[dict[str, Json]] = field(default_factory=list)
    stretch: int = 1
    """How much longer than usual levels are held: more on a repeat, where too little was seen."""
    _next: int = 0

    @property
    def interval(self) -> int:
        value = self.observer.info.get("decode_log_interval")
        return value if isinstance(value, int) and value > 0 else DEFAULT_INTERVAL

    @property
    def draft_tokens(self) -> int:
        """Rows of a request in one verification; a tree has more of them than a chain of as many steps."""
        told = self.observer.info.get("speculative_num_draft_tokens")
        return told if self.spec.topk > 1 and isinstance(told, int) else self.spec.longest

    @property
    def settle(self) -> int:
        """Steps until gauges, refreshed at each log line, speak of this level, and streams that a busy
        server delivers late have caught up."""
        return (self.interval + LATE_STEPS) * self.stretch

    @property
    def span(self) -> int:
        return 2 * self.interval

    def prompt(self) -> str:
        """Each text once, so that no answer comes out of the cache."""
        number = self._next
        self._next += 1
        texts = self.spec.prompts
        text = texts[number % len(texts)]
        return text if number < len(texts) else f"{text}\n(variant {number // len(texts)})"

    def open_tokens(self, windows: int, extra_steps: int = 0) -> int:
        return self.spec.longest * (
            RAMP_STEPS * self.stretch
            + self.settle
            + ((windows + 1) * self.span + SPARE * self.tail) * self.stretch
            + extra_steps
        )

    def closed_tokens(self, windows: int) -> int:
        spared = (windows + SPARE_WINDOWS) * self.span
        return self.ramp + self.settle + (spared + SPARE * self.tail) * self.stretch

    @property
    def ramp(self) -> int:
        """Tokens that a request may write before the last one of its level has joined."""
        return self.spec.longest * RAMP_STEPS * self.stretch

    @property
    def tail(self) -> int:
        """Last steps of a level that are not looked at: others may have left already."""
        return self.interval

    def steps(self, stream: Stream) -> list[Step]:
        return read_steps(stream, self.spec.longest, self.signals.verifies_while_closed)

    async def hold(self, check: str, asked: Sequence[int], prompts: Sequence[str] = ()) -> Level:
        """Run requests of so many tokens each, all at once, to their end."""
        before = len(self.observer.bad_lines)
        pairs = [
            self.client.start(prompts[i] if i < len(prompts) else self.prompt(), tokens)
            for i, tokens in enumerate(asked)
        ]
        await self.client.wait(task for _, task in pairs)
        streams = [stream for stream, _ in pairs]
        self.mark(check, streams)
        self.require_answers(streams, before)
        return Level(bench=self, streams=streams)

    def mark(self, check: str, streams: Sequence[Stream]) -> None:
        ended = [stream.ended for stream in streams if stream.ended is not None]
        if ended:
            start = min(stream.started for stream in streams)
            self.marks.append({"check": check, "C": len(streams), "start": start, "end": max(ended)})

    def require_answers(self, streams: Sequence[Stream], bad_before: int = 0) -> None:
        """Raises Judged (fail) unless every request has its whole answer and the log stayed clean."""
        self.observer.read_log()
        bad = self.observer.bad_lines[bad_before:]
        broken = [stream.problem for stream in streams if stream.problem]
        if broken:
            raise Judged(
                failed(
                    f"{len(broken)} of {len(streams)} requests failed: {broken[0]}",
                    problems=broken[:8],
                    log=bad[:8],
                )
            )
        if bad:
            raise Judged(failed(f"the server's log has: {bad[0]}", log=bad[:8]))


@dataclass
class Level:
    """Requests that ran together. `streams` are those that the windows are about."""

    bench: Bench
    streams: list[Stream]
    whole: Window | None = None
    """The stretch to look at; None: while all of `streams` ran."""

    def __post_init__(self) -> None:
        self.steps_of = [self.bench.steps(stream) for stream in self.streams]
        self.whole = self.whole or plateau(self.streams, self.steps_of, self.bench.tail)

    def windows(self, most: int, settle: int | None = None) -> list[Window]:
        if self.whole is None:
            return []
        bench = self.bench
        return cut(self.steps_of, self.whole, settle=settle or bench.settle, span=bench.span, most=most)

    def closed_windows(self, most: int) -> list[Window]:
        """Cut by tokens: while closed a token is a step, also where a busy server merged two chunks."""
        if self.whole is None:
            return []
        plain = [
            [replace(step, steps=step.tokens if step.total > self.bench.ramp else 0) for step in steps]
            for steps in self.steps_of
        ]
        return cut(plain, self.whole, settle=self.bench.settle, span=self.bench.span, most=most)

    def counts(self, window: Window) -> list[Count]:
        return [count(steps, window) for steps in self.steps_of]

    def rate(self, window: Window) -> float:
        """Tokens a step over all requests."""
        counts = self.counts(window)
        return Count(sum(c.tokens for c in counts), sum(c.steps for c in counts)).rate

    def hidden(self) -> list[int | None]:
        return [
            hidden_steps(stream, steps, self.bench.signals)
            for stream, steps in zip(self.streams, self.steps_of, strict=True)
        ]

    def samples(self, windows: Sequence[Window]) -> list[Sample]:
        if not windows:
            return []
        span = Window(windows[0].start, windows[-1].end)
        return [s for s in self.bench.observer.samples if span.holds(s.asked) and span.holds(s.at)]

    def running(self, windows: Sequence[Window]) -> list[int]:
        """Observed running batch, by decode lines and by the gauge."""
        seen = [d.running for d in self.bench.observer.decodes if any(w.holds(d.at) for w in windows)]
        return seen + [s.running for s in self.samples(windows) if s.running is not None]

    def words(self, windows: Sequence[Window]) -> list[str]:
        """What the gate said of itself within the windows: states polled, and switches in the log."""
        if not windows:
            return []
        said = [s.state for s in self.samples(windows) if s.state is not None]
        start, end = windows[0].start, windows[-1].end
        switches = self.bench.observer.switches
        entered = [state for at, state in switches if at <= start][-1:]
        return said + entered + [state for at, state in switches if start < at <= end]

    def graph(self, windows: Sequence[Window]) -> list[str]:
        """`True`, `False` or both, by the decode lines; without a log by the gauge."""
        seen = [d.graph for d in self.bench.observer.decodes if any(w.holds(d.at) for w in windows)]
        if not self.bench.observer.log_read:
            seen = [s.graph for s in self.samples(windows)]
        return sorted({str(value) for value in seen if value is not None})

    def evidence(self, windows: Sequence[Window]) -> dict[str, Json]:
        samples = self.samples(windows)
        return {
            "asked": len(self.streams),
            "running": sorted(set(self.running(windows))),
            "tokens_per_step": [[c.rate for c in self.counts(w)] for w in windows],
            "steps": [[c.steps for c in self.counts(w)] for w in windows],
            "hidden_steps": self.hidden(),
            "gate": sorted(set(self.words(windows))),
            "queued": max((s.queue for s in samples if s.queue is not None), default=None),
            "retracted": max((s.retracted for s in samples if s.retracted is not None), default=None),
            "graph": self.graph(windows),
        }


def reached(level: Level, windows: Sequence[Window], asked: int) -> Verdict | None:
    """None when the server really ran the asked batch in these windows, else why nothing can be said."""
    seen = level.running(windows)
    evidence = level.evidence(windows)
    if not seen:
        why = "neither its metrics (--enable-metrics) nor its log could be read"
        return inconclusive(f"the running batch of C={asked} was not observed: {why}", **evidence)
    if max(seen) > asked and not level.bench.spec.shared:
        return inconclusive(
            f"foreign traffic: {max(seen)} requests ran, {asked} of them ours (--shared goes on)", **evidence
        )
    if max(seen) < asked:
        return inconclusive(f"C={asked} was not reached: at most {max(seen)} ran at once", **evidence)
    return None
