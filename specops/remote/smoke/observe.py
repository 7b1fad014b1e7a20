"""What the server says of itself while the load runs: metrics, its own state, its log."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..diagnose import Diagnosis, describe
from ..logscan import LogReader
from .load import Client
from .signals import Signals
from .spec import Spec

Json = Any
POLL_S = 0.06
LONGEST_POLL_S = 0.3
SHARE = 5
"""Looks take at most one part in so many of the time: the scheduler answers them between two steps, and on a
small machine each costs it as much as a step."""
METRICS_S = 0.15
SWITCH = re.compile(r"Switch adaptive runtime state: steps (\d+) -> (\d+)")
GATE = re.compile(r"Speculative gate (open|closed): #running-req")
OTHER_RANK = re.compile(r"^\[[^\]]* TP[1-9]\d*[\] ]")
DECODE = re.compile(r"Decode batch.*?#running-req: (\d+)")
ACCEPT = re.compile(r"accept len: ([\d.]+)")
GRAPH = re.compile(r"(?:cuda|cpu) graph: (True|False)")
QUEUE = re.compile(r"#queue-req: (\d+)")


@dataclass(frozen=True)
class Sample:
    """One look at the server. A field is None where the release or the moment gave nothing."""

    asked: float
    at: float
    """Monotonic seconds: what it says was so at some time between the two."""
    running: int | None = None
    queue: int | None = None
    state: str | None = None
    """`open` or `closed`, by the gate's own word."""
    steps: int | None = None
    retracted: int | None = None
    accept: float | None = None
    graph: bool | None = None
    """Whether the last decode step before the newest log line ran in a captured graph."""


@dataclass(frozen=True)
class DecodeLine:
    at: float
    running: int
    accept: float | None
    graph: bool | None
    queue: int


@dataclass
class Observer:
    """Polls until stopped; everything is kept with its time (monotonic seconds)."""

    spec: Spec
    client: Client
    signals: Signals
    samples: list[Sample] = field(default_factory=list)
    decodes: list[DecodeLine] = field(default_factory=list)
    switches: list[tuple[float, str]] = field(default_factory=list)
    """(when, `open` or `closed`) by the log."""
    bad_lines: list[str] = field(default_factory=list)
    """Leaks, tracebacks, a gate that was switched off."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The newest, summed over label sets."""
    info: dict[str, Json] = field(default_factory=dict)
    log_read: bool = False
    """Whether the log could be read at all."""
    poll_s: float = POLL_S

    def __post_init__(self) -> None:
        self._reader: LogReader | None = None
        if self.spec.log and Path(self.spec.log).is_file():
            self._reader = LogReader(Path(self.spec.log))
            self._reader.skip_to_end()
            self.log_read = True
        self._metrics_at, self._fresh = 0.0, False
        self._diagnosis = Diagnosis(gate_expected=self.spec.gate == "native")
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Observer:
        await self.look()
        self._task = asyncio.ensure_future(self._poll())
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _poll(self) -> None:
        reading = asyncio.ensure_future(self._poll_log())
        try:
            while True:
                began = time.monotonic()
                await self.look()
                took = time.monotonic() - began
                await asyncio.sleep(max(self.poll_s, min(took * (SHARE - 1), LONGEST_POLL_S)))
        finally:
            reading.cancel()

    async def _poll_log(self) -> None:
        while True:
            self.read_log()
            await asyncio.sleep(0.02)

    async def look(self) -> Sample:
        """One sample now. Its time is that of the answer to the gate's state."""
        self.read_log()
        await self.read_metrics()
        asked = time.monotonic()
        info = await self.client.get_json(self.signals.info_path, 5.0)
        if isinstance(info, dict):
            self.info = info
        sample = self._sample(asked, isinstance(info, dict))
        self.samples.append(sample)
        return sample

    async def read_metrics(self) -> None:
        """At most every METRICS_S: gauges change at log lines only, and the page is long."""
        if time.monotonic() - self._metrics_at < METRICS_S:
            return
        text = await self.client.get_text("/metrics", 5.0)
        self._metrics_at = time.monotonic()
        self._fresh = bool(text)
        if text:
            self.metrics = parse_metrics(text)

    async def count_finished(self) -> int | None:
        """Requests that ended since the server's start, ours and others'; None without metrics."""
        self._metrics_at = 0.0
        await self.read_metrics()
        value = self.metrics.get("sglang:num_requests_total") if self._fresh else None
        return int(value) if value is not None else None

    def _sample(self, asked: float, told: bool) -> Sample:
        def number(name: str) -> int | None:
            value = self.metrics.get(name) if self._fresh else None
            return int(value) if value is not None else None

        state, steps = self.gate_state() if told else (None, None)
        graph = number("sglang:is_cuda_graph")
        return Sample(
            asked=asked,
            at=time.monotonic(),
            running=number("sglang:num_running_reqs"),
            queue=number("sglang:num_queue_reqs"),
            state=state,
            steps=steps,
            retracted=number("sglang:num_retracted_reqs"),
            accept=self.metrics.get("sglang:spec_accept_length") if self._fresh else None,
            graph=None if graph is None else graph > 0,
        )

    @property
    def internal(self) -> dict[str, Json]:
        states = self.info.get("internal_states")
        return states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}

    def gate_state(self) -> tuple[str | None, int | None]:
        """(`open` or `closed`, draft steps) by the newest server info."""
        if self.spec.gate == "batch-gate":
            gate = self.internal.get("speculative_gate")
            return (gate.get("state"), None) if isinstance(gate, dict) else (None, None)
        if not self.signals.live_steps:
            return None, None
        steps = self.internal.get("speculative_num_steps")
        if not isinstance(steps, int):
            return None, None
        return ("open" if steps > 0 else "closed"), steps

    def read_log(self) -> None:
        if self._reader is None:
            return
        now = time.monotonic()
        for line in self._reader.read_lines():
            self.take_line(line, now)

    async def root_cause(self, patience_s: float = 1.5) -> str:
        """What killed the server, by its own log; empty where nothing fatal is in it."""
        until = time.monotonic() + patience_s
        while self._reader is not None and not self._diagnosis.settled and time.monotonic() < until:
            await asyncio.sleep(0.1)
            self.read_log()
        root = self._diagnosis.root() if self._diagnosis.fatal else None
        return str(describe(root)["message"]) if root else ""

    def take_line(self, line: str, now: float) -> None:
        self._diagnosis.feed(line, time.time())
        switch, gate = SWITCH.search(line), GATE.search(line)
        decode = DECODE.search(line)
        if switch:
            self.switches.append((now, "open" if int(switch.group(2)) > 0 else "closed"))
        elif gate:
            # Every rank writes its own; all of them switch at the same step.
            if not OTHER_RANK.match(line):
                self.switches.append((now, gate.group(1)))
        elif decode:
            accept, graph, queue = ACCEPT.search(line), GRAPH.search(line), QUEUE.search(line)
            self.decodes.append(
                DecodeLine(
                    now,
                    int(decode.group(1)),
                    float(accept.group(1)) if accept else None,
                    graph.group(1) == "True" if graph else None,
                    int(queue.group(1)) if queue else 0,
                )
            )
        elif any(pattern.search(line) for pattern in self.signals.bad_lines):
            self.bad_lines.append(line[:400])


def parse_metrics(text: str) -> dict[str, float]:
    """Prometheus text -> value by name: counters summed over label sets, gauges their highest."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("#") or "_bucket" in line:
            continue
        name = line.split("{", 1)[0].split(" ", 1)[0]
        try:
            value = float(line.rsplit(" ", 1)[1])
        except (IndexError, ValueError):
            continue
        if value != value:
            continue
        old = found.get(name)
        if old is None:
            found[name] = value
        else:
            found[name] = old + value if name.endswith("_total") else max(old, value)
    return found
