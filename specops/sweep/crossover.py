"""Crossover: up to which batch speculation pays, how sure that is, and what a gate at T brings.

Both curves are throughput over C. Where their ratio leaves one for good is the crossover; it is
interpolated in log C, and its uncertainty comes from drawing each level's mean again from its own error.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from specops.sweep.statistics import Estimate, estimate

DRAWS = 1000
SURE = 0.95
Kind = Literal["at", "none up to", "never"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Gain:
    """At one level."""

    at_once: int
    plain: Estimate
    speculating: Estimate

    @property
    def ratio(self) -> float:
        return self.speculating.mean / self.plain.mean if self.plain.mean else 1.0

    @property
    def tok_s(self) -> float:
        return self.speculating.mean - self.plain.mean


@dataclass(frozen=True, kw_only=True, slots=True)
class Crossover:
    kind: Kind
    threshold: int
    """T: the largest batch at which speculation still pays; 0 where it never does."""
    low: int
    high: int | None
    """T is within, in 95 % of the draws, and wherever between two measured levels it may be; None: beyond
    what was measured."""
    bracket: tuple[int, int] | None
    """The two measured levels that the crossover lies between."""
    gains: tuple[Gain, ...]
    repeated: bool
    """There was more than one measurement a level, so the interval rests on something."""

    @property
    def undecided(self) -> bool:
        """The noise is as large as what speculation does."""
        return self.repeated and self.low == 0 and self.high is None

    def sentence(self) -> str:
        first, top = self.gains[0].at_once, self.gains[-1].at_once
        if self.undecided:
            return f"undecided from C={first} to C={top}: the arms differ by less than the noise"
        if self.kind == "never":
            lead, plain = f"speculation is never worth it from C={first} on", self.high == 0
        elif self.kind == "none up to":
            lead = f"no crossover up to C={top}: speculation pays at every level measured"
            plain = self.low == top
        else:
            low, high = self.bracket or (self.threshold, self.threshold)
            lead, plain = f"T={self.threshold}: the curves cross between C={low} and C={high}", False
        if not self.repeated:
            return f"{lead} (measured once a level: how sure that is cannot be said)"
        if plain:
            return lead
        high_text = f"beyond {top}" if self.high is None else str(self.high)
        return f"{lead}; with 95 % certainty T is within {self.low} to {high_text}"


def find_crossover(
    plain: Mapping[int, Sequence[float]], speculating: Mapping[int, Sequence[float]]
) -> Crossover:
    """From repeats of tokens a second by C. Raises ValueError where no level has both."""
    both = sorted(set(plain) & set(speculating))
    gains = tuple(
        Gain(at_once=c, plain=estimate(plain[c]), speculating=estimate(speculating[c]))
        for c in both
        if min(*plain[c], *speculating[c]) > 0
    )
    both = [gain.at_once for gain in gains]
    if not gains:
        raise ValueError("no level was measured with and without speculation")
    logs = [math.log(gain.ratio) for gain in gains]
    end, top = _last_worth(logs), len(gains) - 1
    chance = random.Random(1)  # noqa: S311 - the same sweep has the same interval
    ends = sorted(_last_worth(_draw(gains, chance)) for _ in range(DRAWS))
    low, high = ends[int(DRAWS * (1 - SURE) / 2)], ends[int(DRAWS * (1 + SURE) / 2) - 1]
    kind: Kind = "never" if end < 0 else "none up to" if end == top else "at"
    threshold = 0 if end < 0 else both[-1] if end == top else _interpolate(both, logs, end)
    return Crossover(
        kind=kind,
        threshold=threshold,
        low=0 if low < 0 else both[low],
        high=None if high == top else both[high + 1] - 1,
        bracket=(both[end], both[end + 1]) if kind == "at" else None,
        gains=gains,
        repeated=all(gain.plain.count > 1 and gain.speculating.count > 1 for gain in gains),
    )


def _draw(gains: Sequence[Gain], chance: random.Random) -> list[float]:
    found = []
    for gain in gains:
        means = [max(e.mean * 1e-3, chance.gauss(e.mean, e.error)) for e in (gain.plain, gain.speculating)]
        found.append(math.log(means[1] / means[0]))
    return found


def _last_worth(logs: Sequence[float]) -> int:
    """Index of the last level to speculate at; -1 where there is none.

    The prefix of levels with the largest sum of log gains: one noisy level in the middle of a clear
    stretch moves nothing.
    """
    best, end, total = 0.0, -1, 0.0
    for index, value in enumerate(logs):
        total += value
        if total > best:
            best, end = total, index
    return end


def _interpolate(levels: Sequence[int], logs: Sequence[float], end: int) -> int:
    """Where the gain is one between two levels, in log C; a whole batch, below the upper level."""
    above, below = logs[end], logs[end + 1]
    share = above / (above - below) if above > 0 > below else 0.5
    left, right = math.log(levels[end]), math.log(levels[end + 1])
    place = math.floor(math.exp(left + share * (right - left)) + 1e-9)
    return min(max(place, levels[end]), levels[end + 1] - 1)


def next_level(crossover: Crossover) -> int | None:
    """The level that would tell most: the middle of the bracket, by ratio; None where nothing is between."""
    if crossover.bracket is None:
        return None
    low, high = crossover.bracket
    middle = round(math.sqrt(low * high))
    middle = min(max(middle, low + 1), high - 1)
    return middle if low < middle < high else None


def levels_between(crossover: Crossover, count: int) -> list[int]:
    """Up to so many levels within the bracket, evenly by ratio."""
    if crossover.bracket is None:
        return []
    low, high = crossover.bracket
    places = {round(low * (high / low) ** (i / (count + 1))) for i in range(1, count + 1)}
    return sorted(place for place in places if low < place < high)
