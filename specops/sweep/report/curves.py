"""Curves: a sweep's charts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specops.sweep.arms import ALWAYS_OFF, ALWAYS_ON, GATED, NO_SPEC
from specops.sweep.crossover import Crossover
from specops.sweep.report.chart import Chart, Point, Series
from specops.sweep.runs import Level, Sweep
from specops.sweep.statistics import estimate

COLOURS = {NO_SPEC: 0, ALWAYS_ON: 1, GATED: 2, ALWAYS_OFF: 3}
OPEN_SHARE = 0.5
"""A gate that was closed for more of the window is drawn hollow."""


def draw_curves(sweep: Sweep, crossover: Crossover | None) -> list[Chart]:
    """Throughput with the crossover, what speculation gains, latencies, tokens a verify, gate state."""

    def chart(name: str, title: str, unit: str, figure: str, scale: float = 1.0, tail: str = "") -> Chart:
        series = [_series(sweep, arm, figure, scale) for arm in sweep.arms]
        if tail:
            series += [_series(sweep, arm, tail, scale, dashed=True, suffix=" p99") for arm in sweep.arms]
        return Chart(name=name, title=title, unit=unit, series=_drawn(series))

    charts = [_with_mark(chart("throughput", "Throughput", "tok/s", "throughput"), crossover)]
    if crossover is not None:
        charts.append(_with_mark(_gain(crossover), crossover))
    charts += [
        chart("latency", "Request latency, p50 (dashed: p99)", "s", "latency.p50", tail="latency.p99"),
        chart("ttft", "First token, p50 (dashed: p99)", "ms", "ttft.p50", 1000, tail="ttft.p99"),
        chart("itl", "Between tokens, mean", "ms", "itl.avg", 1000),
        chart("verify", "Tokens a verify (hollow: gate closed)", "", "tokens_per_verify"),
    ]
    return charts


def colour_of(sweep: Sweep, arm: str) -> int:
    return COLOURS.get(arm, sweep.arms.index(arm))


def _series(
    sweep: Sweep, arm: str, figure: str, scale: float, *, dashed: bool = False, suffix: str = ""
) -> Series:
    points = []
    for at_once, levels in sweep.at(arm).items():
        values = [value * scale for level in levels if (value := level.figure(figure)) is not None]
        if values:
            points.append(_point(arm, at_once, values, levels))
    return Series(name=arm + suffix, points=tuple(points), colour=colour_of(sweep, arm), dashed=dashed)


def _point(arm: str, at_once: int, values: Sequence[float], levels: Sequence[Level]) -> Point:
    found = estimate(values)
    doubts = "; ".join(dict.fromkeys(taint for level in levels for taint in level.taints))
    return Point(
        x=at_once,
        y=found.mean,
        low=found.lowest,
        high=found.highest,
        hollow=is_closed(levels),
        words=f"{arm}, C={at_once}: {found.mean:.4g} ({found.lowest:.4g} to {found.highest:.4g}, "
        f"{found.count} measured){'; ' + doubts if doubts else ''}",
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
    from dataclasses import replace

    return replace(chart, mark=crossover.threshold + 0.5, mark_words=f"T={crossover.threshold}")


def _drawn(series: Sequence[Series]) -> tuple[Series, ...]:
    return tuple(each for each in series if each.points)
