"""Ratios of two arms with a 95 % interval, and the noise between two launches of the same thing."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

T_95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
"""Two-sided Student quantiles for 1 to 15 degrees of freedom."""
T_MORE = 2.09


def ratio_interval(ours: Sequence[float], theirs: Sequence[float]) -> list[float] | None:
    """[ratio of geometric means, lower, upper end], by Welch's interval on logarithms; None below two each.

    Throughput varies by a factor and not by an amount, so the logarithm is what has one spread.
    """
    if min(len(ours), len(theirs)) < 2:
        return None
    a, b = [math.log(value) for value in ours], [math.log(value) for value in theirs]
    parts = [statistics.variance(each) / len(each) for each in (a, b)]
    middle, spread = statistics.fmean(a) - statistics.fmean(b), sum(parts)
    freedom = 0.0
    if spread:
        freedom = spread**2 / sum(part**2 / (len(each) - 1) for part, each in zip(parts, (a, b), strict=True))
    t = T_95[max(0, int(freedom) - 1)] if freedom < len(T_95) + 1 else T_MORE
    half = t * math.sqrt(spread)
    return [round(math.exp(value), 3) for value in (middle, middle - half, middle + half)]


def launch_noise(groups: Sequence[Sequence[float]]) -> float | None:
    """How far the medians of launches of one thing lie apart, as a share; None for fewer than two."""
    middles = [statistics.median(group) for group in groups if group]
    return round(max(middles) / min(middles) - 1, 3) if len(middles) > 1 else None
