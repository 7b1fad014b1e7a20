"""Charts as plain shapes, in pixels of a fixed frame: the same shapes become SVG and PNG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

WIDTH, HEIGHT = 480.0, 340.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 16.0, 34.0, 74.0
TEXT = 14.0
MOST_TICKS = 8
SAME_STEPS = 24
"""Pieces of a line that is straight in numbers and bent on a logarithmic axis."""
DIGIT = 8.0
"""Pixels of a digit, and between labels at least half as much: of two nearer ones the later is left out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    x: float
    y: float
    low: float
    high: float
    """Ends of the whisker; equal to y where there is no spread."""
    hollow: bool = False
    doubtful: bool = False
    """Marked, since nobody points at anything on a phone or in a picture."""
    words: str = ""
    """For whoever points at it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    name: str
    points: tuple[Point, ...]
    colour: int
    """Of the palette; also chooses the marker, so that colour is never alone."""
    dashed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    name: str
    """Plain word, for the page's anchors."""
    title: str
    unit: str
    series: tuple[Series, ...]
    mark: float | None = None
    """A vertical line at this x, with its words."""
    mark_words: str = ""
    base: float | None = None
    """A horizontal line at this y."""
    same: bool = False
    """A dashed line where y is x."""
    log: bool = False
    """y is logarithmic, where all values are above zero: one a hundredfold would flatten the rest."""
    x_title: str = "concurrent requests (C)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    points: tuple[tuple[float, float], ...]
    role: str
    """`grid`, `axis`, `mark` or `s0` to `s3`."""
    width: float = 1.0
    dashed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Words:
    x: float
    y: float
    text: str
    anchor: str = "start"
    """`start`, `middle` or `end`."""
    role: str = "text"
    bold: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Marker:
    x: float
    y: float
    role: str
    shape: int
    """0 circle, 1 square, 2 triangle, 3 diamond."""
    hollow: bool = False
    words: str = ""
    data: tuple[tuple[str, str], ...] = ()


Shape = Line | Words | Marker


@dataclass(slots=True)
class Frame:
    """Values to pixels. x is logarithmic, y linear or logarithmic."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    log: bool = False
    ticks: tuple[float, ...] = ()
    """Of y, ascending."""
    shapes: list[Shape] = field(default_factory=list)

    def x(self, value: float) -> float:
        span = math.log(self.x_high / self.x_low)
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(value / self.x_low) / span

    def y(self, value: float) -> float:
        share = (value - self.y_low) / (self.y_high - self.y_low)
        if self.log:
            share = math.log(value / self.y_low) / math.log(self.y_high / self.y_low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share


def draw(chart: Chart) -> list[Shape]:
    """From back to front. A chart without a point says so."""
    points = [point for series in chart.series for point in series.points]
    title = Words(x=8, y=20, text=f"{chart.title}, {chart.unit}" if chart.unit else chart.title, bold=True)
    if not points:
        return [title, Words(x=WIDTH / 2, y=HEIGHT / 2, text="not measured", anchor="middle", role="dim")]
    frame = _frame(chart, points)
    frame.shapes.append(title)
    _draw_axes(frame, chart, points)
    for series in chart.series:
        _draw_series(frame, chart, series)
    if any(point.doubtful for point in points):
        y = HEIGHT - BOTTOM + 38
        frame.shapes.append(Words(x=WIDTH - RIGHT, y=y, text="! doubtful", anchor="end", role="warn"))
    _draw_legend(frame, chart)
    return frame.shapes


def _frame(chart: Chart, points: Sequence[Point]) -> Frame:
    xs = [point.x for point in points]
    low, high = min(xs), max(xs)
    values = [value for point in points for value in (point.low, point.high)]
    log = chart.log and min(values) > 0
    if not log:
        values += [0.0] if chart.base is None else [chart.base]
    values += [high] if chart.same else []
    ticks = log_ticks(min(values), max(values)) if log else linear_ticks(min(values), max(values))
    return Frame(x_low=low / 1.12, x_high=high * 1.12, y_low=ticks[0], y_high=ticks[-1], log=log,
                 ticks=tuple(ticks))  # fmt: skip


def linear_ticks(low: float, high: float) -> list[float]:
    """Around the values, about five, zero among them where it is between."""
    step = tick_step(low, high)
    first = math.floor(low / step)
    last = max(math.ceil(high * 1.02 / step), first + 1)
    return [number * step for number in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Around the values: 1, 2 and 5 times the powers of ten; between the ends of many only the powers."""
    power = math.floor(math.log10(low))
    ladder = [10.0**n * factor for n in range(power, power + 20) for factor in (1, 2, 5)]
    first = max(at for at, tick in enumerate(ladder) if tick <= low * (1 + 1e-9))
    last = max(first + 1, next(at for at, tick in enumerate(ladder) if tick >= high * 1.02))
    ticks = ladder[first : last + 1]
    if len(ticks) > MOST_TICKS:
        ticks = [
            tick
            for at, tick in enumerate(ladder)
            if at in (first, last) or (first < at < last and at % 3 == 0)
        ]
    return ticks


def tick_step(low: float, high: float) -> float:
    """1, 2 or 5 times a power of ten, for about five ticks."""
    span = max(high - low, 1e-9)
    rough = span / 5
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)


def _draw_axes(frame: Frame, chart: Chart, points: Sequence[Point]) -> None:
    for value in frame.ticks:
        y = frame.y(value)
        frame.shapes.append(Line(points=((LEFT, y), (WIDTH - RIGHT, y)), role="grid"))
        frame.shapes.append(Words(x=LEFT - 7, y=y + 5, text=f"{value:.6g}", anchor="end", role="dim"))
    base = HEIGHT - BOTTOM
    frame.shapes.append(Line(points=((LEFT, base), (WIDTH - RIGHT, base)), role="axis"))
    last = -math.inf
    for value in sorted({point.x for point in points}):
        x = frame.x(value)
        frame.shapes.append(Line(points=((x, base), (x, base + 4)), role="axis"))
        half = len(f"{value:g}") * DIGIT / 2
        if x - half >= last + DIGIT / 2:
            frame.shapes.append(Words(x=x, y=base + 19, text=f"{value:g}", anchor="middle", role="dim"))
            last = x + half
    middle = (LEFT + WIDTH - RIGHT) / 2
    frame.shapes.append(Words(x=middle, y=base + 38, text=chart.x_title, anchor="middle", role="dim"))
    if chart.base is not None:
        y = frame.y(chart.base)
        frame.shapes.append(Line(points=((LEFT, y), (WIDTH - RIGHT, y)), role="axis", width=1.5))
    if chart.same:
        low, high = min(point.x for point in points), max(point.x for point in points)
        xs = [low * (high / low) ** (step / SAME_STEPS) for step in range(SAME_STEPS + 1)]
        path = tuple((frame.x(x), frame.y(x)) for x in xs)
        frame.shapes.append(Line(points=path, role="axis", width=1.5, dashed=True))
    if chart.mark is not None and frame.x_low < chart.mark < frame.x_high:
        x = frame.x(chart.mark)
        frame.shapes.append(Line(points=((x, TOP), (x, base)), role="mark", width=1.5, dashed=True))
        left = x > WIDTH * 0.6
        place = x - 5 if left else x + 5
        anchor = "end" if left else "start"
        frame.shapes.append(Words(x=place, y=TOP + 12, text=chart.mark_words, anchor=anchor, role="mark"))


def _draw_series(frame: Frame, chart: Chart, series: Series) -> None:
    role = f"s{series.colour % 4}"
    path = tuple((frame.x(point.x), frame.y(point.y)) for point in series.points)
    frame.shapes.append(Line(points=path, role=role, width=2, dashed=series.dashed))
    for point, (x, y) in zip(series.points, path, strict=True):
        if point.high > point.low:
            low, high = frame.y(point.low), frame.y(point.high)
            frame.shapes.append(Line(points=((x, low), (x, high)), role=role, width=1.5))
            for end in (low, high):
                frame.shapes.append(Line(points=((x - 4, end), (x + 4, end)), role=role, width=1.5))
        if point.doubtful and not series.dashed:
            top = max(frame.y(point.high) - 8, TOP + 2)
            frame.shapes.append(Words(x=x, y=top, text="!", anchor="middle", role="warn", bold=True))
        data = (
            ("chart", chart.name),
            ("series", series.name),
            ("x", f"{point.x:g}"),
            ("y", f"{point.y:.6g}"),
        )
        frame.shapes.append(
            Marker(
                x=x,
                y=y,
                role=role,
                shape=series.colour % 4,
                hollow=point.hollow,
                words=point.words,
                data=data,
            )
        )


def _draw_legend(frame: Frame, chart: Chart) -> None:
    x, y = LEFT - 40, HEIGHT - 12
    for series in chart.series:
        if series.dashed:
            continue
        width = 26 + len(series.name) * TEXT * 0.56 + 12
        role = f"s{series.colour % 4}"
        frame.shapes.append(Line(points=((x, y - 5), (x + 20, y - 5)), role=role, width=2))
        frame.shapes.append(Marker(x=x + 10, y=y - 5, role=role, shape=series.colour % 4))
        frame.shapes.append(Words(x=x + 26, y=y, text=series.name))
        x += width
