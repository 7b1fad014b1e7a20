"""SVG: the shapes of a chart as markup; colours come from the page's style, so that dark is dark."""

from __future__ import annotations

from html import escape

from specops.sweep.report.chart import HEIGHT, TEXT, WIDTH, Chart, Line, Marker, Shape, Words, draw

RADIUS = 4.5


def draw_svg(chart: Chart) -> str:
    """One <svg> element."""
    label = escape(f"{chart.title}, {chart.unit} over {chart.x_title}", quote=True)
    head = f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{label}" id="chart-{chart.name}">'
    return "\n".join([head, *(shape_of(shape) for shape in draw(chart)), "</svg>"])


def shape_of(shape: Shape) -> str:
    if isinstance(shape, Words):
        weight = ' font-weight="600"' if shape.bold else ""
        return (
            f'<text x="{shape.x:.1f}" y="{shape.y:.1f}" font-size="{TEXT:g}" text-anchor="{shape.anchor}" '
            f'class="t-{shape.role}"{weight}>{escape(shape.text)}</text>'
        )
    if isinstance(shape, Line):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in shape.points)
        dash = ' stroke-dasharray="6 4"' if shape.dashed else ""
        return f'<polyline points="{path}" class="l-{shape.role}" stroke-width="{shape.width:g}"{dash}/>'
    return marker_of(shape)


def marker_of(marker: Marker) -> str:
    data = "".join(f' data-{name}="{escape(value, quote=True)}"' for name, value in marker.data)
    fill = "hollow" if marker.hollow else "full"
    style = f'class="m-{marker.role} {fill}"{data}'
    title = f"<title>{escape(marker.words)}</title>" if marker.words else ""
    if marker.shape == 0:
        return f'<circle cx="{marker.x:.2f}" cy="{marker.y:.2f}" r="{RADIUS}" {style}>{title}</circle>'
    path = " ".join(f"{x:.2f},{y:.2f}" for x, y in corners(marker))
    return f'<polygon points="{path}" {style}>{title}</polygon>'


def corners(marker: Marker) -> list[tuple[float, float]]:
    """Of a marker that is no circle; its centre is the middle of its box."""
    x, y, r = marker.x, marker.y, RADIUS
    if marker.shape == 1:
        return [(x - r, y - r), (x + r, y - r), (x + r, y + r), (x - r, y + r)]
    if marker.shape == 2:
        return [(x, y - r), (x + r, y + r), (x - r, y + r)]
    return [(x, y - r - 1), (x + r + 1, y), (x, y + r + 1), (x - r - 1, y)]
