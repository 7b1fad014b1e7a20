"""SweepSpec: what is measured, as the controller sends it (ARCHITECTURE, The sweep's child)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..smoke.spec import Spec, parse_spec

Json = Any
APIS = ("generate", "completions", "chat")


@dataclass(frozen=True)
class Arm:
    """One way to run the same server. `threshold` None: as it is."""

    name: str
    threshold: int | None = None


@dataclass(frozen=True)
class Run:
    """One measurement: a level of concurrent requests, or a rate of them, for one arm."""

    arm: Arm
    level: int
    """Requests at once; with `rate` the most at once."""
    repeat: int
    number: int
    """From 0 over the whole sweep; makes each request's text its own."""
    rate: float | None = None
    """Requests a second; None: a closed loop."""


@dataclass(frozen=True)
class SweepSpec:
    watch: Spec
    """What the observer reads the server with."""
    api: str
    runs: tuple[Run, ...]
    requests: int
    """Per level, at least; a level has never fewer than its concurrency."""
    window_s: float | None
    """Seconds of a steady window; None: by count of requests."""
    max_tokens: int
    ignore_eos: bool
    prompt_tokens: tuple[int, int] | None
    """Random prompts of so many tokens, from and to; None: `watch.prompts`."""
    seed: int
    max_running: int | None

    @property
    def url(self) -> str:
        return self.watch.url

    @property
    def gap_s(self) -> float:
        return self.watch.token_gap_s

    def count(self, level: int) -> int:
        return max(level, self.requests)


def parse_sweep(raw: dict[str, Json], built_in: tuple[str, ...]) -> SweepSpec:
    """Raises KeyError, TypeError or ValueError where the controller sent what cannot be."""
    known = {"threshold": 1, "gate": "none", "num_steps": 0, "shared": True}
    api = str(raw.get("api") or "generate")
    if api not in APIS:
        raise ValueError(f"api {api!r} is none of {', '.join(APIS)}")
    window = raw.get("window_s")
    span = raw.get("prompt_tokens")
    return SweepSpec(
        watch=parse_spec({**known, **raw, "checks": ["S0"]}, built_in),
        api=api,
        runs=_order(raw),
        requests=int(raw.get("requests") or 30),
        window_s=float(window) if window else None,
        max_tokens=int(raw.get("max_tokens") or 512),
        ignore_eos=bool(raw.get("ignore_eos", True)),
        prompt_tokens=(int(span[0]), int(span[1])) if span else None,
        seed=int(raw.get("seed") or 1),
        max_running=raw.get("max_running"),
    )


def _order(raw: dict[str, Json]) -> tuple[Run, ...]:
    """Level by level, so that a crash costs the higher ones only; the arms there and back again (A B, B A),
    so that a drift of the machine shows as spread and not as a difference between arms."""
    arms = [Arm(str(a["name"]), a.get("threshold")) for a in raw.get("arms") or ()] or [Arm("as it is")]
    repeats = int(raw.get("repeats") or 1)
    first = int(raw.get("first_repeat") or 1)
    rates = [float(rate) for rate in raw.get("rates") or ()]
    points: list[tuple[int, float | None]] = [(int(level), None) for level in raw.get("levels") or ()]
    points += [(int(raw.get("most_at_once") or 256), rate) for rate in rates]
    if not points:
        raise ValueError("neither levels nor rates")
    runs: list[Run] = []
    for level, rate in points:
        for repeat in range(first, first + repeats):
            for arm in arms if repeat % 2 else arms[::-1]:
                runs.append(Run(arm=arm, level=level, repeat=repeat, number=len(runs), rate=rate))
    return tuple(runs)
