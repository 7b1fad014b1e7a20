"""Load: a level's requests, closed loop or by rate, and the steady window within it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .answer import Answer
from .client import Client
from .figures import Span
from .spec import Run

MORE = 2
"""Requests after the window of a load by rate, for each one that it left: random arrivals come in heaps."""
RAMP_TOKENS = 16
"""Least of a request that fills the server; they end one after the other, so that no wave forms."""


@dataclass
class Loaded:
    """What a level sent."""

    answers: list[Answer] = field(default_factory=list)
    span: Span | None = None
    """All of the level's requests were in flight from its start to its end; None: never."""
    ended: str = ""
    """Why it ended early."""
    unsent: int = 0
    """Arrivals that came with the most requests at once already running."""
    ramped: bool = False
    """By rate: the window has the time in it in which the server filled, for want of a later one."""

    @property
    def counted(self) -> list[Answer]:
        return [answer for answer in self.answers if not answer.ramp]

    @property
    def whole(self) -> Span:
        """From the first request sent to the last one's end."""
        ends = [answer.ended for answer in self.answers if answer.ended is not None]
        start = min((answer.sent for answer in self.answers), default=0.0)
        return Span(start, max(ends, default=start))


@dataclass
class ClosedLoop:
    """C workers, each with one request at a time."""

    client: Client
    run: Run
    prompt: Callable[[], str]
    loaded: Loaded = field(default_factory=Loaded)

    def __post_init__(self) -> None:
        spec = self.client.spec
        self._left = spec.count(self.run.level) if spec.window_s is None else None
        self._firsts: list[Answer] = []
        self._idle_at: float | None = None
        self._stopping = False
        self._closing = False

    async def execute(self) -> Loaded:
        """Raises Hung; what was sent until then is in `loaded`."""
        spec = self.client.spec
        workers = [asyncio.ensure_future(self._work(number)) for number in range(self.run.level)]
        clock = asyncio.ensure_future(self._keep_time(spec.window_s)) if spec.window_s else None
        try:
            await self.client.wait(workers)
        finally:
            if clock:
                clock.cancel()
        if self.loaded.span is None:
            self.loaded.span = self._steady()
        return self.loaded

    async def _work(self, number: int) -> None:
        first, ended = True, None
        while not (self._stopping or self._closing):
            if self._left is not None:
                if self._left == 0:
                    break
                self._left -= 1
            tokens, ramp = self._length(number) if first else (self.client.spec.max_tokens, False)
            answer = Answer(tokens, exact=self.client.spec.ignore_eos, ramp=ramp)
            self.loaded.answers.append(answer)
            if first:
                self._firsts.append(answer)
                first = False
            await self.client.send(self.prompt(), tokens, started=answer)
            ended = answer.ended
            if answer.lost:
                self._stopping = True
            elif self._closing:
                await self._fill(answer)
        if self._idle_at is None:
            self._idle_at = ended or time.monotonic()

    async def _fill(self, before: Answer) -> None:
        """After the window, for as long as those that began in it may take: they would end sooner alone, and
        their latencies would be those of no steady load. In no figure itself."""
        if before.ended is None or not before.count or self.loaded.span is None:
            return
        a_token_s = (before.ended - before.sent) / before.count
        tokens = self.client.spec.max_tokens - int((before.ended - self.loaded.span.end) / a_token_s)
        if tokens >= RAMP_TOKENS:
            await self.client.send(self.prompt(), tokens)

    def _length(self, number: int) -> tuple[int, bool]:
        """(tokens, whether it only fills the server) of a worker's first request."""
        spec = self.client.spec
        if spec.window_s is None or self.run.level == 1:
            return spec.max_tokens, False
        share = spec.max_tokens * (number + 1) // self.run.level
        return max(min(RAMP_TOKENS, spec.max_tokens), share), True

    async def _keep_time(self, window_s: float) -> None:
        while len(self._firsts) < self.run.level or any(a.first is None for a in self._firsts):
            if self._stopping or any(a.ended is not None and a.first is None for a in self._firsts):
                self._stopping = True
                return
            await asyncio.sleep(0.01)
        start = time.monotonic()
        await asyncio.sleep(window_s)
        self.loaded.span = Span(start, time.monotonic())
        self._closing = True

    def _steady(self) -> Span | None:
        firsts = [answer.first for answer in self._firsts]
        known = [moment for moment in firsts if moment is not None]
        if len(known) < self.run.level or self._idle_at is None or self._idle_at <= max(known):
            return None
        return Span(max(known), self._idle_at)


@dataclass
class ByRate:
    """Requests at random times, so many a second, whatever the server does with them."""

    client: Client
    run: Run
    prompt: Callable[[], str]
    seed: int
    loaded: Loaded = field(default_factory=Loaded)

    async def execute(self) -> Loaded:
        """The window opens with the first answer's end: from then on some come and some go. Every arm of a
        repeat has its requests at the same times. Raises Hung."""
        spec = self.client.spec
        rate = self.run.rate or 1.0
        clock = random.Random(f"{self.seed}/{rate:g}/{self.run.repeat}")  # noqa: S311 - arrivals, no secret
        tasks: list[asyncio.Future[Answer]] = []
        due = time.monotonic()
        opened: float | None = None
        last = spec.count(1)
        while True:
            if opened is None and any(task.done() for task in tasks):
                opened = time.monotonic()
            for_count = spec.window_s is None and len(self.loaded.answers) >= last
            if opened is not None and spec.window_s and time.monotonic() - opened >= spec.window_s:
                break
            if for_count or self.client.hangs() or any(answer.lost for answer in self.loaded.answers[-8:]):
                break
            if len(self.client.running) >= self.run.level:
                self.loaded.unsent += 1
            else:
                answer = Answer(
                    spec.max_tokens, exact=spec.ignore_eos, ramp=opened is None and bool(spec.window_s)
                )
                self.loaded.answers.append(answer)
                tasks.append(
                    asyncio.ensure_future(self.client.send(self.prompt(), spec.max_tokens, started=answer))
                )
            due += clock.expovariate(rate)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        closed = time.monotonic()
        more: list[asyncio.Future[Answer]] = []
        going_on = asyncio.ensure_future(
            self._go_on(more, rate, clock) if spec.window_s else asyncio.sleep(0)
        )
        try:
            await self.client.wait(tasks)
        finally:
            going_on.cancel()
        await self.client.wait(more)
        start = self.loaded.whole.start
        self.loaded.ramped = opened is None or (spec.window_s is None and opened > (start + closed) / 2)
        self.loaded.span = Span(start if opened is None or self.loaded.ramped else opened, closed)
        return self.loaded

    async def _go_on(self, more: list[asyncio.Future[Answer]], rate: float, clock: random.Random) -> None:
        """As `ClosedLoop._fill`: those of the window are not to end on a server that empties. No more than a
        steady load has in the meantime."""
        for _ in range(MORE * len(self.client.running)):
            await asyncio.sleep(clock.expovariate(rate))
            if len(self.client.running) < self.run.level:
                more.append(
                    asyncio.ensure_future(self.client.send(self.prompt(), self.client.spec.max_tokens))
                )
