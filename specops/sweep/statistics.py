"""Statistics: a mean with its interval, and whether two means differ by more than the noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
        2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
        2.045, 2.042)  # fmt: skip
"""Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom (standard table)."""
NORMAL_95 = 1.96
LEAST_CHANGE = 0.02
"""Share below which a difference is not worth a word, however certain."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    mean: float
    low: float
    high: float
    """95 % interval of the mean; of one value it is that value, and says nothing."""
    lowest: float
    highest: float
    """Of the values themselves."""
    count: int

    @property
    def error(self) -> float:
        """Standard error of the mean; 0 where there is one value."""
        return (self.high - self.mean) / t_quantile(self.count - 1) if self.count > 1 else 0.0


def t_quantile(freedom: float) -> float:
    """For 95 %, two-sided; between two whole degrees it is nearly linear in their inverse."""
    whole = max(1, math.floor(freedom))
    if whole >= len(T_95):
        return T_95[-1] if whole == len(T_95) else NORMAL_95
    share = (1 / whole - 1 / max(freedom, whole)) / (1 / whole - 1 / (whole + 1))
    return T_95[whole - 1] + share * (T_95[whole] - T_95[whole - 1])


def estimate(values: Sequence[float]) -> Estimate:
    """Raises ValueError for no values."""
    if not values:
        raise ValueError("an estimate of nothing")
    mean = fmean(values)
    half = t_quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return Estimate(
        mean=mean,
        low=mean - half,
        high=mean + half,
        lowest=min(values),
        highest=max(values),
        count=len(values),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """From one set of repeats to another."""

    before: Estimate
    after: Estimate
    low: float
    high: float
    """95 % interval of the difference of the means (Welch); of single values it has no width."""

    @property
    def share(self) -> float:
        return self.after.mean / self.before.mean - 1 if self.before.mean else 0.0

    @property
    def known(self) -> bool:
        """Both sides were repeated, so that there is a noise to compare with."""
        return self.before.count > 1 and self.after.count > 1

    @property
    def real(self) -> bool:
        """Beyond noise, and large enough to matter."""
        return self.known and abs(self.share) >= LEAST_CHANGE and (self.low > 0 or self.high < 0)


def compare(before: Sequence[float], after: Sequence[float]) -> Change:
    """Welch's interval: the two sides may be differently noisy."""
    a, b = estimate(before), estimate(after)
    difference = b.mean - a.mean
    variances = [e.error**2 for e in (a, b)]
    error = math.sqrt(sum(variances))
    half = 0.0
    if error > 0 and a.count > 1 and b.count > 1:
        parts = [v**2 / (e.count - 1) for v, e in zip(variances, (a, b), strict=True)]
        half = t_quantile(sum(variances) ** 2 / sum(parts)) * error
    return Change(before=a, after=b, low=difference - half, high=difference + half)
