"""Taints: what makes a level's figures doubtful, and what could not be seen at all."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from ..smoke.observe import Observer
from .answer import Answer
from .figures import Span
from .lateness import is_limited
from .load import Loaded
from .spec import Run, SweepSpec

Json = Any
GAUGE_S = 0.2
"""A gauge may have been read so long before the look that it belongs to."""
FILLED = 0.9
"""Share of C that must have run, by the server's own count."""
WAITING = 0.25
"""Share of looks at the server with requests in its queue: fewer are those that have just come."""


PILED = 0.1
"""Share of the window's requests by which those in flight grew: the server does not serve what comes."""
FEW_STEPS = 10
"""Chunks of a stream: of fewer, the one at the window's edge is too large a part."""


@dataclass(frozen=True)
class Seen:
    """What the server said of itself within the window."""

    running: list[int]
    queue: list[int]
    states: list[str]
    retracted: int
    graphs_off: bool
    finished_by_others: int | None

    def describe(self) -> dict[str, Json]:
        """{batch: {mean, median, max} or null, gate: {open: share, closed: share} or null, queue: mean}."""
        batch = None
        if self.running:
            batch = {
                "mean": statistics.fmean(self.running),
                "median": statistics.median(self.running),
                "max": max(self.running),
            }
        gate = None
        if self.states:
            gate = {state: self.states.count(state) / len(self.states) for state in ("open", "closed")}
        queue = statistics.fmean(self.queue) if self.queue else None
        return {"batch": batch, "gate": gate, "queue": queue}


def look_back(observer: Observer, span: Span, whole: Span, finished_by_others: int | None) -> Seen:
    """A window too short to hold one look has its gate's state from the whole level; its batch is unknown."""
    lines = [line for line in observer.decodes if span.holds(line.at)]
    samples = [sample for sample in observer.samples if span.holds(sample.at)]
    samples = samples or [sample for sample in observer.samples if whole.holds(sample.at)]
    fresh = [sample for sample in samples if span.start + GAUGE_S <= sample.at <= span.end]
    gauges = [sample.running for sample in fresh if sample.running is not None]
    switches = [state for at, state in observer.switches if at <= span.start][-1:]
    switches += [state for at, state in observer.switches if span.holds(at)]
    polled = [sample.state for sample in samples if sample.state is not None]
    return Seen(
        running=[line.running for line in lines] or gauges,
        queue=[line.queue for line in lines] + [s.queue for s in fresh if s.queue is not None],
        states=polled or switches,
        retracted=max((sample.retracted for sample in samples if sample.retracted), default=0),
        graphs_off=any(line.graph is False for line in lines),
        finished_by_others=finished_by_others,
    )


def find_taints(spec: SweepSpec, run: Run, loaded: Loaded, seen: Seen, client: dict[str, Json]) -> list[str]:
    """In words; empty for a level that can be relied on."""
    bad = sum(1 for answer in loaded.answers if answer.problem)
    taints = [loaded.ended] if loaded.ended else []
    if bad:
        taints.append(f"errors: {bad}")
    if loaded.span is None:
        taints.append("no steady window: the first request ended before the last one began")
    elif run.rate is None and (steps := _steps(loaded, loaded.span) / run.level) < FEW_STEPS:
        taints.append(f"short window: {steps:.0f} chunks a stream in {loaded.span.seconds:.1f} s")
    if run.rate is not None and loaded.span is not None:
        taints += _of_rate(spec, loaded, loaded.span)
    if loaded.unsent:
        taints.append(f"rate not reached: {loaded.unsent} arrivals found {run.level} running")
    retracted = sum(_retractions(answer) for answer in loaded.answers) or seen.retracted
    if retracted:
        taints.append(f"retraction: {retracted}")
    taints += _of_batch(spec, run, seen)
    if seen.graphs_off and spec.watch.graphs:
        taints.append("graph off")
    if seen.finished_by_others:
        taints.append(f"foreign traffic: {seen.finished_by_others} requests of others ended")
    if is_limited(client):
        taints.append("client_limited")
    return taints


def _of_rate(spec: SweepSpec, loaded: Loaded, span: Span) -> list[str]:
    """Requests that pile up have latencies that depend on how long one measured. Random arrivals go up and
    down by the root of what runs; answers of different lengths still fill the server when one has ended."""
    if loaded.ramped:
        return ["ramp in the window: answers take as long as the arrivals"]
    before, after = _in_flight(loaded, span.start), _in_flight(loaded, span.end)
    sent = sum(span.start <= answer.sent <= span.end for answer in loaded.answers)
    if spec.ignore_eos and after - before > max(PILED * sent, 3 * after**0.5):
        return [f"overloaded: from {before} to {after} requests in flight"]
    return []


def _in_flight(loaded: Loaded, moment: float) -> int:
    return sum(
        answer.sent <= moment and (answer.ended is None or answer.ended > moment) for answer in loaded.answers
    )


def _steps(loaded: Loaded, span: Span) -> int:
    """Chunks that came in the window."""
    return sum(answer.chunks_in(span.start, span.end) for answer in loaded.answers)


def _of_batch(spec: SweepSpec, run: Run, seen: Seen) -> list[str]:
    taints = []
    waiting = [count for count in seen.queue if count]
    if run.rate is None and len(waiting) > WAITING * len(seen.queue):
        cap = f" (the server runs at most {spec.max_running})" if spec.max_running else ""
        taints.append(f"queueing: {statistics.fmean(seen.queue):.0f} waited{cap}")
    if seen.running and max(seen.running) > run.level:
        taints.append(f"foreign traffic: {max(seen.running)} ran")
    if run.rate is None and seen.running and statistics.median(seen.running) < FILLED * run.level:
        taints.append(f"observed batch {statistics.median(seen.running):.0f}")
    return taints


def find_unknown(seen: Seen) -> list[str]:
    """What nobody could see, so that no missing taint is taken for a good sign."""
    unknown = [] if seen.running else ["running batch"]
    if seen.finished_by_others is None:
        unknown.append("others' requests")
    return unknown


def _retractions(answer: Answer) -> int:
    value = answer.meta.get("total_retractions")
    return value if isinstance(value, int) else 0
