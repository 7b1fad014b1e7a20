"""PNG: the same shapes through Pillow, which is an optional extra (`pip install 'specops[png]'`).

Pillow brings a scalable font of its own, so that a picture looks the same on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from specops.errors import UsageError
from specops.sweep.report.chart import HEIGHT, TEXT, WIDTH, Chart, Line, Marker, Words, draw
from specops.sweep.report.svg import RADIUS, corners

COLOURS = {
    "grid": "#e3e6ea", "axis": "#8a929c", "mark": "#7a4fb5", "text": "#1b1f24", "dim": "#59636e",
    "warn": "#a1260d", "s0": "#0b63a5", "s1": "#c4501b", "s2": "#0a7f5b", "s3": "#8a4bb0",
}  # fmt: skip
SCALE = 4
"""Drawn so many times larger, then made half as large: smooth lines at twice the frame's size."""
COLUMNS = 2


def write_png(charts: Sequence[Chart], heading: str, path: Path) -> None:
    """All charts below a heading. Raises UsageError where Pillow is not installed."""
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        raise UsageError(
            "a PNG needs Pillow, which is not installed",
            next_command="pip install 'specops[png]'; the HTML page needs nothing",
        ) from None
    rows = -(-len(charts) // COLUMNS)
    size = (int(WIDTH * COLUMNS * SCALE), int((HEIGHT * rows + 40) * SCALE))
    image = Image.new("RGB", size, "white")
    pen = _Pen(ImageDraw.Draw(image))
    pen.words(Words(x=8, y=26, text=heading, bold=True), 0, 0)
    for number, chart in enumerate(charts):
        pen.chart(chart, WIDTH * (number % COLUMNS), 40 + HEIGHT * (number // COLUMNS))
    small = image.resize((size[0] // 2, size[1] // 2), Image.Resampling.LANCZOS)
    small.save(path, "PNG")


class _Pen:
    def __init__(self, draw_on: Any) -> None:
        from PIL import ImageFont

        self._draw = draw_on
        self._font = ImageFont.load_default(TEXT * SCALE)

    def chart(self, chart: Chart, left: float, top: float) -> None:
        for shape in draw(chart):
            if isinstance(shape, Words):
                self.words(shape, left, top)
            elif isinstance(shape, Line):
                self._line(shape, left, top)
            else:
                self._marker(shape, left, top)

    def words(self, shape: Words, left: float, top: float) -> None:
        place = ((left + shape.x) * SCALE, (top + shape.y) * SCALE)
        anchor = {"start": "ls", "middle": "ms", "end": "rs"}[shape.anchor]
        stroke = 1 if shape.bold else 0
        fill = COLOURS[shape.role]
        self._draw.text(place, shape.text, fill=fill, font=self._font, anchor=anchor, stroke_width=stroke)

    def _line(self, shape: Line, left: float, top: float) -> None:
        points = [((left + x) * SCALE, (top + y) * SCALE) for x, y in shape.points]
        width = max(1, round(shape.width * SCALE))
        pieces = _dashes(points) if shape.dashed else [points]
        for piece in pieces:
            if len(piece) > 1:
                self._draw.line(piece, fill=COLOURS[shape.role], width=width, joint="curve")

    def _marker(self, marker: Marker, left: float, top: float) -> None:
        colour = COLOURS[marker.role]
        fill = "white" if marker.hollow else colour
        if marker.shape == 0:
            x, y, r = (left + marker.x) * SCALE, (top + marker.y) * SCALE, RADIUS * SCALE
            self._draw.ellipse((x - r, y - r, x + r, y + r), fill=fill, outline=colour, width=SCALE)
        else:
            points = [((left + x) * SCALE, (top + y) * SCALE) for x, y in corners(marker)]
            self._draw.polygon(points, fill=fill, outline=colour, width=SCALE)


def _dashes(points: list[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """Straight pieces of 6 with 4 between them, as in the SVG."""
    pieces = []
    for (x1, y1), (x2, y2) in pairwise(points):
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        at = 0.0
        while at < length:
            end = min(at + 6 * SCALE, length)
            pieces.append([(x1 + (x2 - x1) * s / length, y1 + (y2 - y1) * s / length) for s in (at, end)])
            at += 10 * SCALE
    return pieces
