"""Sweeps made up for tests: known curves with known noise."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from specops.sweep.runs import Sweep, parse_sweep

LEVELS = (1, 2, 5, 10, 30, 70, 100, 250)


def plain(at_once: int) -> float:
    """Tokens a second without speculation: grows, then saturates."""
    return 3000.0 * at_once / (at_once + 30)


def gain(at_once: int) -> float:
    """Of speculation: 1.8 alone, 1 at a batch of 16, less above."""
    return 1.8 / (1 + 0.8 * at_once / 16)


def make_level(arm: str, at_once: int, repeat: int, tok_s: float, **more: Any) -> dict[str, Any]:
    each = at_once / tok_s
    times = {"avg": each * 128, "p50": each * 128, "p90": each * 140, "p99": each * 150}
    small = {name: value / 128 for name, value in times.items()}
    return {
        "event": "level", "arm": arm, "C": at_once, "rate": None, "repeat": repeat, "requests": 30, "ok": 30,
        "throughput": tok_s, "per_req": tok_s / at_once, "latency": times, "ttft": small, "itl": small,
        "tpot": small, "tokens": 3840, "tokens_per_verify": 2.5 if arm == "always-on" else 1.0,
        "window_s": 10.0, "batch": {"mean": at_once, "median": at_once, "max": at_once},
        "gate": {"open": 1.0, "closed": 0.0} if arm == "always-on" else {"open": 0.0, "closed": 1.0},
        "taints": [], "unknown": [], **more,
    }  # fmt: skip


RATES = (0.5, 2.0, 4.0, 8.0, 16.0)
MOST = {"no-spec": 3.0, "always-on": 6.0}
"""Requests a second that a server manages."""


def make_rates(*, repeats: int = 3) -> list[dict[str, Any]]:
    """By rate, of 128 tokens a request: all is served until it is too much, and then requests pile up."""
    levels = []
    for rate in RATES:
        for repeat in range(1, repeats + 1):
            for arm, most in MOST.items():
                sent, served = rate * (1 + 0.02 * repeat), min(rate, most)
                wait = 0.05 / (1 - rate / most) if rate < most else 3.0 * repeat
                times = {"avg": wait, "p50": wait, "p90": 1.5 * wait, "p99": 2 * wait}
                more = {"rate": rate, "rate_sent": sent, "rate_served": served, "ttft": times}
                taints = [] if rate < most else [f"overloaded: from 4 to {40 * repeat} requests in flight"]
                levels.append(make_level(arm, 256, repeat, 128 * served, taints=taints, **more))
    return levels


def make_sweep(
    *,
    noise: float = 0.01,
    repeats: int = 3,
    seed: int = 1,
    better: Callable[[int], float] = gain,
    scale: float = 1.0,
    rates: bool = False,
) -> Sweep:
    chance = random.Random(seed)
    levels = []
    for at_once in LEVELS:
        for repeat in range(1, repeats + 1):
            for arm, factor in (("no-spec", 1.0), ("always-on", better(at_once))):
                tok_s = plain(at_once) * factor * scale * chance.gauss(1, noise)
                levels.append(make_level(arm, at_once, repeat, tok_s))
    levels += make_rates(repeats=repeats) if rates else []
    about = {
        "host": "box", "release": "0.5.18", "arms": [{"name": "no-spec"}, {"name": "always-on"}],
        "server": {"tp_size": 8, "model_path": "/models/<big>"}, "command": "specops sweep --host box",
    }  # fmt: skip
    return parse_sweep(
        {"levels": levels, "about": about, "started": 1796000000.0, "ended": "finished"}, "run"
    )
