"""Verdict: what a sweep's arms say of the threshold, and what differs between two sweeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specops.sweep.arms import ALWAYS_OFF, ALWAYS_ON, GATED, NO_SPEC
from specops.sweep.crossover import Crossover, find_crossover
from specops.sweep.runs import Level, Sweep
from specops.sweep.statistics import Change, compare, estimate

Json = Any
FIGURES = (
    ("throughput", "tok/s", True),
    ("latency.p50", "s", False),
    ("ttft.p50", "s", False),
    ("itl.avg", "s", False),
)
"""Compared between two sweeps: (figure, unit, whether more is better)."""


def decide(sweep: Sweep) -> Crossover | None:
    """None where the sweep has no speculating and no plain arm with a level in common.

    The gate's closed state is what a gate at T gives above T, so it decides where it was measured; the
    server without speculation is what a claim of speed is held to.
    """
    speculating = sweep.throughputs(ALWAYS_ON)
    for plain in (ALWAYS_OFF, NO_SPEC):
        values = sweep.throughputs(plain)
        if set(values) & set(speculating):
            return find_crossover(values, speculating)
    return None


def plain_arm(sweep: Sweep) -> str:
    """The arm that `decide` compares with."""
    return ALWAYS_OFF if sweep.throughputs(ALWAYS_OFF) else NO_SPEC


def unequal_room(sweep: Sweep) -> str | None:
    """In words, where the arms' servers do not run the same number of requests at once: one queues before the
    others do."""
    most = {str(arm.get("name")): arm.get("max_running") for arm in sweep.about.get("arms") or ()}
    known = {name: value for name, value in most.items() if value}
    if len(set(known.values())) < 2:
        return None
    return "most requests at once differ: " + ", ".join(f"{name} {value}" for name, value in known.items())


@dataclass(frozen=True, kw_only=True, slots=True)
class GatedGain:
    """What a gate at T gives at one level, in tokens a second."""

    at_once: int
    gated: float
    measured: bool
    """By the gated arm itself; else put together from the two states."""
    over_plain: float | None
    """None where nothing without speculation was measured."""
    over_always_on: float | None
    claim: bool
    """The plain side is an unmodified launch without speculation."""


def gains_of_gate(sweep: Sweep, threshold: int) -> list[GatedGain]:
    on, off = sweep.throughputs(ALWAYS_ON), sweep.throughputs(plain_arm(sweep))
    measured = _gated_at(sweep, threshold)
    honest = sweep.throughputs(NO_SPEC)
    found = []
    for at_once in sorted({*on, *off, *measured}):
        values = measured.get(at_once) or (on if at_once <= threshold else off).get(at_once)
        if not values:
            continue
        gated = estimate(values).mean
        base = honest.get(at_once) or off.get(at_once)
        found.append(
            GatedGain(
                at_once=at_once,
                gated=gated,
                measured=at_once in measured,
                over_plain=gated - estimate(base).mean if base else None,
                over_always_on=gated - estimate(on[at_once]).mean if at_once in on else None,
                claim=at_once in honest,
            )
        )
    return found


def _gated_at(sweep: Sweep, threshold: int) -> dict[int, list[float]]:
    """The gated arm's figures, where its T was the one asked about."""
    for arm in sweep.about.get("arms") or ():
        if arm.get("name") == GATED and arm.get("threshold") == threshold:
            return sweep.throughputs(GATED)
    return {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    arm: str
    at_once: int | None
    rate: float | None
    """Requests a second; at a level of concurrent requests None, as `at_once` is at a rate."""
    figure: str
    unit: str
    change: Change
    better: bool | None
    """None: within noise, or nothing to tell noise by."""

    def words(self) -> str:
        share = f"{100 * self.change.share:+.1f} %"
        if not self.change.known:
            return f"{share}, measured once: noise unknown"
        if self.better is None:
            return f"{share}, within noise"
        return f"{share}, {'better' if self.better else 'worse'}"


def compare_sweeps(before: Sweep, after: Sweep) -> list[Difference]:
    """Every arm and level, or rate, that both have, figure by figure."""
    found = []
    for arm in [arm for arm in before.arms if arm in after.arms]:
        old, new = _points(before, arm), _points(after, arm)
        for at_once, rate in [point for point in old if point in new]:
            for figure, unit, more in FIGURES:
                a = [v for level in old[at_once, rate] if (v := level.figure(figure)) is not None]
                b = [v for level in new[at_once, rate] if (v := level.figure(figure)) is not None]
                if not a or not b:
                    continue
                change = compare(a, b)
                better = ((change.share > 0) == more) if change.real else None
                found.append(
                    Difference(
                        arm=arm, at_once=at_once, rate=rate, figure=figure, unit=unit, change=change,
                        better=better,
                    )
                )  # fmt: skip
    return found


def _points(sweep: Sweep, arm: str) -> dict[tuple[int | None, float | None], list[Level]]:
    """Levels by (C, None), then by (None, rate)."""
    found: dict[tuple[int | None, float | None], list[Level]] = {}
    found |= {(at_once, None): levels for at_once, levels in sweep.at(arm).items()}
    found |= {(None, rate): levels for rate, levels in sweep.by_rate(arm).items()}
    return found


def differing(before: Mapping[str, Json], after: Mapping[str, Json]) -> list[tuple[str, str, str]]:
    """(dotted key, before, after) of what was not the same about two sweeps' servers and loads."""
    one, other = _flat(before), _flat(after)
    skipped = ("command", "arms", "smoke", "deploy")
    names = [name for name in sorted({*one, *other}) if name.split(".")[0] not in skipped]
    return [
        (name, one.get(name, "-"), other.get(name, "-"))
        for name in names
        if one.get(name, "-") != other.get(name, "-")
    ]


def _flat(value: Json, name: str = "") -> dict[str, str]:
    if not isinstance(value, Mapping):
        return {name: str(value)}
    found: dict[str, str] = {}
    for key, each in value.items():
        found |= _flat(each, f"{name}.{key}" if name else str(key))
    return found
