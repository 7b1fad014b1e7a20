"""A kept sweep: what was measured, on what, and how to measure it again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specops.errors import UsageError

Json = Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """One measurement."""

    arm: str
    at_once: int
    """C: concurrent requests; of a load by rate the most that were let in."""
    rate: float | None
    """Requests a second, where it was no closed loop."""
    repeat: int
    throughput: float
    """Tokens a second."""
    taints: tuple[str, ...]
    raw: Mapping[str, Json]
    """The whole level event (ARCHITECTURE, The sweep's child)."""

    @property
    def load(self) -> str:
        """`C=8` or `0.5 requests/s`."""
        return f"C={self.at_once}" if self.rate is None else f"{self.rate:g} requests/s"

    def figure(self, name: str) -> float | None:
        """`throughput`, `ttft.p50`, …: seconds, tokens a second; None where it was not measured."""
        value: Json = self.raw
        for word in name.split("."):
            value = value.get(word) if isinstance(value, Mapping) else None
        return float(value) if isinstance(value, int | float) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    name: str
    """Of its file, for tables."""
    host: str
    started: float
    """Unix seconds."""
    levels: tuple[Level, ...]
    about: Mapping[str, Json]
    """{release, gate, patches, arms, server, machine, prompts, command, versions, …}."""
    ended: str

    @property
    def arms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(level.arm for level in self.levels))

    def at(self, arm: str) -> dict[int, list[Level]]:
        """Closed-loop measurements by C, ascending."""
        found: dict[int, list[Level]] = {}
        for level in self.levels:
            if level.arm == arm and level.rate is None:
                found.setdefault(level.at_once, []).append(level)
        return dict(sorted(found.items()))

    def by_rate(self, arm: str) -> dict[float, list[Level]]:
        """Measurements by requests a second, ascending."""
        found: dict[float, list[Level]] = {}
        for level in self.levels:
            if level.arm == arm and level.rate is not None:
                found.setdefault(level.rate, []).append(level)
        return dict(sorted(found.items()))

    @property
    def has_rates(self) -> bool:
        return any(level.rate is not None for level in self.levels)

    @property
    def only_rates(self) -> bool:
        """No level of concurrent requests, which is what a crossover is found by."""
        return self.has_rates and all(level.rate is not None for level in self.levels)

    @property
    def loads(self) -> str:
        """`C=1, 2, 5; 0.5, 8 requests/s`."""
        levels = sorted({level.at_once for level in self.levels if level.rate is None})
        rates = sorted({level.rate for level in self.levels if level.rate is not None})
        words = [f"C={', '.join(map(str, levels))}"] if levels else []
        words += [f"{', '.join(f'{rate:g}' for rate in rates)} requests/s"] if rates else []
        return "; ".join(words)

    def throughputs(self, arm: str) -> dict[int, list[float]]:
        """Of the closed loop: what a threshold is decided by."""
        return {c: [level.throughput for level in levels] for c, levels in self.at(arm).items()}


def read_sweep(path: str | Path) -> Sweep:
    """Raises UsageError where the file is no kept sweep."""
    place = Path(path).expanduser()
    try:
        raw = json.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file", next_command="specops history") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read as a kept sweep: {error}") from None
    if not isinstance(raw, dict) or not isinstance(raw.get("levels"), list):
        raise UsageError(f"{path}: is no kept sweep: it has no list of levels")
    return parse_sweep(raw, place.stem)


def parse_sweep(raw: Mapping[str, Json], name: str) -> Sweep:
    about = raw.get("about") or {}
    return Sweep(
        name=name,
        host=str(about.get("host") or "?"),
        started=float(raw.get("started") or 0),
        levels=tuple(parse_level(level) for level in raw["levels"]),
        about=about,
        ended=str(raw.get("ended") or "?"),
    )


def parse_level(raw: Mapping[str, Json]) -> Level:
    return Level(
        arm=str(raw.get("arm") or "as it is"),
        at_once=int(raw["C"]),
        rate=None if raw.get("rate") is None else float(raw["rate"]),
        repeat=int(raw.get("repeat") or 1),
        throughput=float(raw["throughput"]),
        taints=tuple(str(taint) for taint in raw.get("taints") or ()),
        raw=raw,
    )


def merge(sweeps: Sequence[Sweep]) -> Sweep:
    """Several as one: repeats of the same arm add up, other arms stand beside each other."""
    first = sweeps[0]
    if len(sweeps) == 1:
        return first
    arms = [arm for sweep in sweeps for arm in sweep.about.get("arms") or ()]
    return Sweep(
        name=", ".join(sweep.name for sweep in sweeps),
        host=", ".join(dict.fromkeys(sweep.host for sweep in sweeps)),
        started=min(sweep.started for sweep in sweeps),
        levels=tuple(level for sweep in sweeps for level in sweep.levels),
        about={**first.about, "arms": arms},
        ended="; ".join(dict.fromkeys(sweep.ended for sweep in sweeps)),
    )


def tainted(levels: Iterable[Level]) -> list[str]:
    """Every taint once, in the order they were found."""
    return list(dict.fromkeys(taint for level in levels for taint in level.taints))
