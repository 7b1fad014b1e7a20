"""Levels made by hand: streams of so many tokens a chunk, beside what the server would have said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specops.remote.smoke.bench import Bench, Level
from specops.remote.smoke.load import Chunk, Client, Stream
from specops.remote.smoke.observe import Observer, Sample
from specops.remote.smoke.signals import read_signals
from specops.remote.smoke.spec import Spec, parse_spec

STEP_S = 0.01
START_S = 100.0


def make_spec(**changes: Any) -> Spec:
    raw = {
        "url": "http://127.0.0.1:1",
        "threshold": 5,
        "gate": "native",
        "release": "0.5.18",
        "num_steps": 3,
        "exact_outputs": True,
        **changes,
    }
    return parse_spec(raw, ("a", "b"))


def make_bench(**changes: Any) -> Bench:
    spec = make_spec(**changes)
    signals = read_signals(spec.release, spec.gate)
    client = Client(spec)
    observer = Observer(spec=spec, client=client, signals=signals)
    observer.info = {"decode_log_interval": 10}
    return Bench(spec=spec, client=client, observer=observer, signals=signals)


def make_stream(tokens: Sequence[int], *, verifies: int | None = None, start: float = START_S) -> Stream:
    """A prefill's token, then a chunk every STEP_S; one verification each, unless `verifies` says else."""
    total = 1 + sum(tokens)
    stream = Stream(prompt="a", asked=total, started=start - STEP_S)
    so_far = 1
    stream.chunks.append(Chunk(start, 1, None))
    for number, more in enumerate(tokens, 1):
        so_far += more
        stream.chunks.append(Chunk(start + number * STEP_S, so_far, None))
    stream.meta = {"spec_verify_ct": len(tokens) if verifies is None else verifies}
    stream.ended = stream.chunks[-1].at
    stream.ids = list(range(total))
    return stream


def say(bench: Bench, level: Level, *, state: str | None, running: int | None) -> None:
    """The server's own words all along the level."""
    at, end = level.streams[0].started, max(stream.moved for stream in level.streams)
    while at < end:
        bench.observer.samples.append(Sample(asked=at, at=at + 0.001, running=running, queue=0, state=state))
        at += 0.05


def make_level(
    bench: Bench, streams: list[Stream], *, state: str | None = None, running: int | None = None
) -> Level:
    level = Level(bench=bench, streams=streams)
    say(bench, level, state=state, running=running)
    return level
