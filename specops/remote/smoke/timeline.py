"""The whole run over time, as data: batch, threshold, gate state, tokens a step of the victims."""

from __future__ import annotations

from typing import Any

from .bench import Bench

Json = Any
MOST = 600
"""Samples kept; more are thinned evenly."""


def draw(bench: Bench) -> dict[str, Json]:
    """Times are seconds since the first sample."""
    samples = bench.observer.samples
    if not samples:
        return {
            "threshold": bench.spec.threshold,
            "samples": [],
            "spans": [],
            "victims": [],
            "uninterrupted": [],
        }
    zero = samples[0].at
    every = max(1, -(-len(samples) // MOST))
    return {
        "threshold": bench.spec.threshold,
        "samples": [
            {"t": round(s.at - zero, 2), "running": s.running, "state": s.state, "queue": s.queue}
            for s in samples[::every]
        ],
        "batch": [[round(d.at - zero, 2), d.running] for d in bench.observer.decodes][:MOST],
        "switches": [[round(at - zero, 2), state] for at, state in bench.observer.switches][:MOST],
        "spans": [
            {
                "check": mark["check"],
                "C": mark["C"],
                "start": round(mark["start"] - zero, 2),
                "end": round(mark["end"] - zero, 2),
            }
            for mark in bench.marks
        ],
        "victims": [_shift(victim["points"], zero) for victim in bench.victims],
        "uninterrupted": [_shift(victim["uninterrupted"], zero) for victim in bench.victims],
    }


def _shift(points: list[list[float]], zero: float) -> list[list[float]]:
    return [[round(at - zero, 2), rate] for at, rate in points]
