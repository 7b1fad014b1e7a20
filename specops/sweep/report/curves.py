"""Curves: a sweep's charts, over concurrency and over the rate of requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from specops.sweep.arms import ALWAYS_OFF, ALWAYS_ON, GATED, NO_SPEC
from specops.sweep.crossover import Crossover
from specops.sweep.report.chart import Chart, Point, Series
from specops.sweep.runs import Level, Sweep, tainted
from specops.sweep.statistics import estimate

COLOURS = {NO_SPEC: 0, ALWAYS_ON: 1, GATED: 2, ALWAYS_OFF: 3}
OPEN_SHARE = 0.5
"""A gate that was closed for more of the window is drawn hollow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Axis:
    """What levels are drawn over."""

    prefix: str
    """Of the charts' names."""
    suffix: str
    """Of their titles."""
    x_title: str
    levels: Callable[[Sweep, str], Iterable[tuple[float, list[Level]]]]
    """Of an arm, ascending."""


_OVER_C = _Axis(
    prefix="",
    suffix="",
    x_title="concurrent requests (C)",
    levels=lambda sweep, arm: sweep.at(arm).items(),
)
_OVER_RATE = _Axis(
    prefix="rate-",
    suffix=" by rate",
    x_title="requests a second, as asked",
    levels=lambda sweep, arm: sweep.by_rate(arm).items(),
)


def draw_curves(sweep: Sweep, crossover: Crossover | None) -> list[Chart]:
    """Over concurrency: throughput with the crossover, what speculation gains, latencies, tokens a verify,
    gate state. Empty where only rates were measured."""
    if sweep.only_rates:
        return []
    charts = [
        _with_mark(_chart(sweep, _OVER_C, "throughput", "Throughput", "tok/s", "throughput"), crossover)
    ]
    if crossover is not None:
        charts.append(_with_mark(_gain(crossover), crossover))
    return [*charts, *_common(sweep, _OVER_C)]


def draw_rate_curves(sweep: Sweep) -> list[Chart]:
    """Over the rate that was asked: what was served of it, then the same. Empty without such levels."""
    if not sweep.has_rates:
        return []
    served = _chart(sweep, _OVER_RATE, "served", "Requests served", "1/s", "rate_served")
    return [
        replace(served, title="Requests served (dashed: as many as asked)", same=True),
        _chart(sweep, _OVER_RATE, "throughput", "Throughput", "tok/s", "throughput"),
        *_common(sweep, _OVER_RATE),
    ]


def _common(sweep: Sweep, axis: _Axis) -> list[Chart]:
    def chart(name: str, title: str, unit: str, figure: str, scale: float = 1.0, tail: str = "") -> Chart:
        return _chart(sweep, axis, name, title, unit, figure, scale, tail)

    return [
        chart("latency", "Request latency", "s", "latency.p50", tail="latency.p99"),
        chart("ttft", "First token", "ms", "ttft.p50", 1000, tail="ttft.p99"),
        chart("itl", "Between tokens", "ms", "itl.p50", 1000, tail="itl.p99"),
        chart("verify", "Tokens a verify", "", "tokens_per_verify"),
    ]


def _chart(
    sweep: Sweep,
    axis: _Axis,
    name: str,
    title: str,
    unit: str,
    figure: str,
    scale: float = 1.0,
    tail: str = "",
) -> Chart:
    series = [_series(sweep, axis, arm, figure, scale) for arm in sweep.arms]
    if tail:
        series += [_series(sweep, axis, arm, tail, scale, dashed=True) for arm in sweep.arms]
    note = ", p50 (dashed: p99)" if tail else " (hollow: gate closed)" if name == "verify" else ""
    return Chart(
        name=axis.prefix + name,
        title=title + axis.suffix + note,
        unit=unit,
        series=_drawn(series),
        x_title=axis.x_title,
        log=bool(tail),
    )


def colour_of(sweep: Sweep, arm: str) -> int:
    return COLOURS.get(arm, sweep.arms.index(arm))


def _series(
    sweep: Sweep, axis: _Axis, arm: str, figure: str, scale: float, *, dashed: bool = False
) -> Series:
    points = []
    for x, levels in axis.levels(sweep, arm):
        values = [value * scale for level in levels if (value := level.figure(figure)) is not None]
        if values:
            points.append(_point(x, values, levels))
    name = f"{arm} p99" if dashed else arm
    return Series(name=name, points=tuple(points), colour=colour_of(sweep, arm), dashed=dashed)


def _point(x: float, values: Sequence[float], levels: Sequence[Level]) -> Point:
    found = estimate(values)
    doubts = "; ".join(tainted(levels))
    return Point(
        x=x,
        y=found.mean,
        low=found.lowest,
        high=found.highest,
        hollow=is_closed(levels),
        doubtful=bool(doubts),
        words=f"{levels[0].arm}, {levels[0].load}: {found.mean:.4g} "
        f"({found.lowest:.4g} to {found.highest:.4g}, {found.count} measured)"
        f"{'; ' + doubts if doubts else ''}",
    )


def is_closed(levels: Sequence[Level]) -> bool:
    shares = [share for level in levels if (share := level.figure("gate.open")) is not None]
    return bool(shares) and sum(shares) / len(shares) < OPEN_SHARE


def _gain(crossover: Crossover) -> Chart:
    """Percent, with the 95 % interval of the ratio where levels were repeated."""
    percent: Callable[[float], float] = lambda ratio: 100 * (ratio - 1)  # noqa: E731
    points = []
    for gain in crossover.gains:
        relative = ((gain.plain.error / gain.plain.mean) ** 2 + (
            gain.speculating.error / gain.speculating.mean
        ) ** 2) ** 0.5 if gain.plain.mean and gain.speculating.mean else 0.0  # fmt: skip
        half = 1.96 * relative * gain.ratio
        points.append(
            Point(
                x=gain.at_once,
                y=percent(gain.ratio),
                low=percent(gain.ratio - half),
                high=percent(gain.ratio + half),
                words=f"C={gain.at_once}: {percent(gain.ratio):+.1f} % ({gain.tok_s:+.1f} tok/s)",
            )
        )
    series = Series(name="speculating over plain", points=tuple(points), colour=1)
    return Chart(name="gain", title="What speculation gains", unit="%", series=(series,), base=0.0)


def _with_mark(chart: Chart, crossover: Crossover | None) -> Chart:
    if crossover is None or crossover.kind != "at":
        return chart
    return replace(chart, mark=crossover.threshold + 0.5, mark_words=f"T={crossover.threshold}")


def _drawn(series: Sequence[Series]) -> tuple[Series, ...]:
    return tuple(each for each in series if each.points)
