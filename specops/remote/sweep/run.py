"""A whole sweep: announced, then run by run; what is finished stays, whatever ends it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from ..smoke.load import Client as Watching
from ..smoke.observe import Observer
from ..smoke.signals import read_signals
from .client import Client, Hung
from .figures import Span, compute
from .lateness import Lateness
from .line import format_level
from .load import ByRate, ClosedLoop, Loaded
from .spec import Run, SweepSpec
from .taints import find_taints, find_unknown, look_back
from .texts import Texts
from .threshold import NotTaken, Threshold

Json = Any
Emit = Callable[[dict[str, Json]], None]
WARM_UP_TOKENS = 32
POLL_S = 0.5
"""Looks at the server cost it something: seldom, where speed is measured."""
SLOWER = 64
"""For the announcement only: so many requests at once double the time of each."""


class Ended(Exception):
    """The sweep cannot go on; its words are for people."""


class Sweep:
    def __init__(self, spec: SweepSpec, emit: Emit, came: Callable[[], float] = time.monotonic) -> None:
        self.spec = spec
        self.emit = emit
        self._came = came
        self.levels: list[dict[str, Json]] = []
        self._texts = Texts(spec)

    async def execute(self) -> str:
        """`finished`, or why it ended early."""
        watch = self.spec.watch
        async with (
            Watching(watch) as asking,
            Client(self.spec, await _model_of(asking), self._came) as client,
        ):
            signals = read_signals(watch.release, watch.gate)
            self._observer = Observer(spec=watch, client=asking, signals=signals, poll_s=POLL_S)
            self._client = client
            threshold = Threshold(asking, signals.info_path)
            async with self._observer:
                try:
                    await self._announce()
                    for run in self.spec.runs:
                        if run.arm.threshold is not None:
                            await threshold.set(run.arm.threshold, self.emit)
                        await self._measure(run)
                except (Ended, NotTaken) as ended:
                    return str(ended)
                finally:
                    await threshold.put_back()
        return "finished"

    async def _announce(self) -> None:
        """One small request, which tells the speed and that there is a server; then the time it will take."""
        await self._texts.calibrate(self._client)
        tokens = min(WARM_UP_TOKENS, self.spec.max_tokens)
        probe = await self._client.send(self._texts.next(self.spec.runs[0]), tokens)
        if probe.problem:
            raise Ended(f"no request was answered: {probe.problem}")
        each_s = ((probe.ended or 0.0) - probe.sent) / max(1, probe.count)
        seconds = sum(self._expect_s(run, each_s) for run in self.spec.runs)
        self.emit(
            {
                "event": "note",
                "message": f"sweep: {len(self.spec.runs)} measurements, {_about(seconds)}",
                "seconds": round(seconds, 1),
                "runs": len(self.spec.runs),
            }
        )

    def _expect_s(self, run: Run, each_s: float) -> float:
        at_once = run.level if run.rate is None else 1
        answer_s = self.spec.max_tokens * each_s * (1 + at_once / SLOWER)
        warm_s = WARM_UP_TOKENS * each_s * (1 + at_once / SLOWER)
        if self.spec.window_s:
            return warm_s + self.spec.window_s + answer_s * (1 if run.rate is None else 3)
        if run.rate is not None:
            return warm_s + self.spec.requests / run.rate + answer_s
        return warm_s + -(-self.spec.count(run.level) // run.level) * answer_s

    async def _measure(self, run: Run) -> None:
        await self._warm_up(run)
        before = await self._observer.count_finished()
        ours_before = self._client.finished
        loaded, client = await self._load(run)
        after = await self._observer.count_finished()
        ours = self._client.finished - ours_before
        others = None if before is None or after is None else max(0, after - before - ours)
        event = self._describe(run, loaded, client, others)
        lost = any(answer.lost for answer in loaded.answers)
        if event["ok"]:
            self.levels.append(event)
            self.emit(event)
        if not (loaded.ended or lost or not event["ok"]):
            return
        why = loaded.ended or (event["errors"] or ["no request was answered"])[0]
        cause = await self._observer.root_cause()
        raise Ended(f"{name_of(run)}: {why}" + (f"; the server's log says: {cause}" if cause else ""))

    async def _warm_up(self, run: Run) -> None:
        """As many at once as the level has: what is compiled or allocated for this size is so before."""
        count = run.level if run.rate is None else 1
        tokens = min(WARM_UP_TOKENS, self.spec.max_tokens)
        tasks = [
            asyncio.ensure_future(self._client.send(self._texts.next(run), tokens)) for _ in range(count)
        ]
        try:
            await self._client.wait(tasks)
        except Hung as hung:
            raise Ended(f"{name_of(run)}: while warming up: {hung}") from None

    async def _load(self, run: Run) -> tuple[Loaded, dict[str, Json]]:
        def prompt() -> str:
            return self._texts.next(run)

        load: ClosedLoop | ByRate
        if run.rate is None:
            load = ClosedLoop(self._client, run, prompt)
        else:
            load = ByRate(self._client, run, prompt, self.spec.seed)
        lateness = Lateness()
        glance = asyncio.ensure_future(self._glance(load.loaded))
        async with lateness:
            try:
                await load.execute()
            except Hung as hung:
                load.loaded.ended = str(hung)
            finally:
                glance.cancel()
        return load.loaded, lateness.describe()

    async def _glance(self, loaded: Loaded) -> None:
        """One look as soon as tokens come, so that the shortest level has been seen too."""
        while not any(answer.first is not None for answer in loaded.answers):
            await asyncio.sleep(0.01)
        await self._observer.look()

    def _describe(
        self, run: Run, loaded: Loaded, client: dict[str, Json], others: int | None
    ) -> dict[str, Json]:
        span = loaded.span or loaded.whole
        seen = look_back(self._observer, span, loaded.whole, others)
        counted = loaded.counted or loaded.answers
        inside = [a for a in counted if a.ended is not None and a.ended > span.start]
        good = [answer for answer in loaded.answers if not answer.problem]
        event: dict[str, Json] = {"event": "level", "C": run.level, "arm": run.arm.name}
        event |= {"threshold": run.arm.threshold, "rate": run.rate, "repeat": run.repeat}
        event |= {"requests": len(loaded.answers), "ok": len(good)}
        event |= compute(loaded.answers, inside or counted, span)
        if run.rate is not None:
            event |= count_rates(loaded, span, event["throughput"])
        event["window"] = [span.start, span.end]
        event |= {"window_s": span.seconds, "wall_s": loaded.whole.seconds, "at": time.time()}
        event["in_flight"] = mean_in_flight(loaded, span)
        event |= seen.describe()
        if event["tokens_per_verify"] is None:
            event["tokens_per_verify"] = self._accept(span)
        event["errors"] = [answer.problem for answer in loaded.answers if answer.problem][:5]
        event["client"] = client
        event["lag_s"] = client["lag_max_s"]
        event["taints"] = find_taints(self.spec, run, loaded, seen, client)
        event["unknown"] = find_unknown(seen)
        event["line"] = format_level(event)
        return event

    def _accept(self, span: Span) -> float | None:
        """By the server's own average, where the answers do not say."""
        said = [line.accept for line in self._observer.decodes if span.holds(line.at) and line.accept]
        said = said or [s.accept for s in self._observer.samples if span.holds(s.at) and s.accept]
        return sum(said) / len(said) if said else None


def name_of(run: Run) -> str:
    what = f"C={run.level}" if run.rate is None else f"{run.rate:g} requests/s"
    return what if run.arm.name == "as it is" else f"{run.arm.name}, {what}"


def count_rates(loaded: Loaded, span: Span, throughput: float) -> dict[str, Json]:
    """Requests a second in the window: {rate_sent, rate_served}. Served is what its tokens make up, so that
    it does not jump with the one that ended just before its edge."""
    good = [answer.count for answer in loaded.answers if not answer.problem]
    sent = sum(span.start <= answer.sent <= span.end for answer in loaded.answers)
    return {
        "rate_sent": sent / span.seconds if span.seconds > 0 else None,
        "rate_served": throughput * len(good) / sum(good) if good else None,
    }


def mean_in_flight(loaded: Loaded, span: Span) -> float:
    """Requests in flight on average over the window."""
    if span.seconds <= 0:
        return 0.0
    inside = sum(
        max(
            0.0,
            min(answer.ended if answer.ended is not None else span.end, span.end)
            - max(answer.sent, span.start),
        )
        for answer in loaded.answers
    )
    return inside / span.seconds


async def _model_of(asking: Watching) -> str:
    """The first name that the server serves, which the OpenAI interfaces want to be told."""
    page = await asking.get_json("/v1/models", 5.0)
    models = page.get("data") if isinstance(page, dict) else None
    return str(models[0].get("id")) if isinstance(models, list) and models else "default"


def _about(seconds: float) -> str:
    return f"about {max(5, round(seconds / 5) * 5)} s" if seconds < 90 else f"about {round(seconds / 60)} min"
