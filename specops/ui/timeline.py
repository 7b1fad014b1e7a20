"""The timeline of a smoke test: one picture (SVG, written here) and a compact view for a terminal.

Both draw what `timeline` in the result holds: the running batch against the threshold, the gate's own state,
and the tokens a step of the requests that lived through a crossing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

Json = Any
WIDTH, LEFT, RIGHT = 1000, 56, 16
BATCH_TOP, BATCH_HEIGHT = 44, 180
STATE_TOP, STATE_HEIGHT = 240, 16
RATE_TOP, RATE_HEIGHT = 284, 110
SECONDS, HEIGHT = 412, 440
LETTER, CAPTION = 6.5, 150
"""Width of a letter in pixels, about; letters that a line holds."""
OPEN, CLOSED, INK, FAINT, ALARM, FADED = "#2f9e60", "#c77d1e", "#1f2933", "#c9d1d9", "#c0392b", "#6b7785"
VERDICTS = {"pass": OPEN, "fail": ALARM, "error": ALARM, "inconclusive": CLOSED}
VICTIMS = ("#2463a8", "#8a3ffc", "#0f766e")
BARS = " ▁▂▃▄▅▆▇█"


def draw_svg(
    timeline: Mapping[str, Json],
    title: str = "boundary smoke test",
    checks: Iterable[Mapping[str, Json]] = (),
) -> str:
    """A whole SVG document. An empty timeline gives an empty diagram, not an error.

    `checks` (id, verdict, summary) mark each check's stretch, and the first that did not pass is written out.
    """
    checks = list(checks)
    verdicts = {str(check.get("id")): str(check.get("verdict")) for check in checks}
    end = length_s(timeline)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="11" fill="{INK}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="16" font-size="13" font-weight="bold">{escape(title)}</text>',
        *_draw_spans(timeline, end, verdicts),
        *_draw_batch(timeline, end),
        *_draw_states(timeline, end),
        *_draw_victims(timeline, end),
        *_draw_seconds(end),
        *_draw_verdict(checks),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def view_lines(timeline: Mapping[str, Json], width: int = 100) -> list[str]:
    """Checks, running batch, gate and tokens a step over time, a line each; `width` columns of data."""
    end = length_s(timeline)
    if not timeline.get("samples"):
        return []
    top = max(
        [int(timeline.get("threshold") or 0), *(int(value) for _, value in _batch(timeline))], default=1
    )
    batch = _columns(_batch(timeline), end, width)
    rates = _columns([point for victim in timeline.get("victims") or () for point in victim], end, width)
    states = _states(timeline, end, width)
    most = max((value for value in rates if value), default=1.0)
    lines = [
        "check   " + _label_spans(timeline, end, width),
        "batch   "
        + "".join(_bar(value, top) for value in batch)
        + f"  0 to {top}, T={timeline.get('threshold')}",
        "gate    " + "".join(states) + "  ─ open, █ closed",
    ]
    if any(value is not None for value in rates):
        lines.append(
            "tok/step" + "".join(_bar(value, most) for value in rates) + f"  victims, 0 to {most:.1f}"
        )
    return [*lines, f"        0 s{f'{end:.0f} s':>{width - 3}}"]


def length_s(timeline: Mapping[str, Json]) -> float:
    times = [sample["t"] for sample in timeline.get("samples") or ()]
    times += [span["end"] for span in timeline.get("spans") or ()]
    return max([float(time) for time in times], default=0.0) or 1.0


def _batch(timeline: Mapping[str, Json]) -> list[tuple[float, float]]:
    """(seconds, running requests) by gauge and by decode line."""
    points = [
        (float(sample["t"]), float(sample["running"]))
        for sample in timeline.get("samples") or ()
        if sample.get("running") is not None
    ]
    return sorted(points + [(float(time), float(value)) for time, value in timeline.get("batch") or ()])


def _spells(timeline: Mapping[str, Json], end: float) -> Iterator[tuple[float, float, str]]:
    """(from, to, state) by the gate's own word, neighbours joined."""
    points = [(float(s["t"]), str(s["state"])) for s in timeline.get("samples") or () if s.get("state")]
    points = sorted(points + [(float(time), str(state)) for time, state in timeline.get("switches") or ()])
    start: float | None = None
    state = ""
    for time, now in points:
        if start is not None and now != state:
            yield start, time, state
        if now != state:
            start, state = time, now
    if start is not None:
        yield start, end, state


def _x(seconds: float, end: float) -> float:
    return round(LEFT + (WIDTH - LEFT - RIGHT) * min(1.0, max(0.0, seconds / end)), 1)


def _y(value: float, most: float, top: int, height: int) -> float:
    return round(top + height - height * min(1.0, value / most), 1)


def _draw_spans(timeline: Mapping[str, Json], end: float, verdicts: Mapping[str, str]) -> Iterator[str]:
    """Each check's own background, and its name once, with how it ended where it has the room."""
    for number, (name, start, stop) in enumerate(_checks(timeline)):
        left, right = _x(start, end), _x(stop, end)
        shade = "#f4f6f8" if number % 2 else "#e9eef3"
        yield (
            f'<rect x="{left}" y="{BATCH_TOP - 18}" width="{max(1.0, right - left):.1f}" '
            f'height="{RATE_TOP + RATE_HEIGHT - BATCH_TOP + 18}" fill="{shade}"/>'
        )
        verdict = verdicts.get(name, "")
        colour = VERDICTS.get(verdict, INK)
        words = f"{name} {verdict}" if len(name + verdict) * LETTER < right - left else name
        yield f'<text x="{left + 3}" y="{BATCH_TOP - 6}" fill="{colour}">{escape(words.strip())}</text>'


def _draw_verdict(checks: Iterable[Mapping[str, Json]]) -> Iterator[str]:
    """The first check that did not pass, in its own words; else that all did."""
    known = [check for check in checks if check.get("verdict")]
    if not known:
        return
    bad = next((check for check in known if check["verdict"] != "pass"), None)
    words = f"all {len(known)} checks passed"
    colour = OPEN
    if bad is not None:
        words = f"{bad.get('id')} {bad['verdict']}: {bad.get('summary') or ''}"
        colour = VERDICTS.get(str(bad["verdict"]), INK)
    if len(words) > CAPTION:
        words = words[: CAPTION - 1] + "…"
    yield f'<text x="{LEFT}" y="{HEIGHT - 8}" font-size="12" fill="{colour}">{escape(words)}</text>'


def _checks(timeline: Mapping[str, Json]) -> list[tuple[str, float, float]]:
    found: list[tuple[str, float, float]] = []
    for span in timeline.get("spans") or ():
        name, start, stop = str(span["check"]), float(span["start"]), float(span["end"])
        if found and found[-1][0] == name:
            found[-1] = (name, found[-1][1], max(stop, found[-1][2]))
        else:
            found.append((name, start, stop))
    return found


def _draw_batch(timeline: Mapping[str, Json], end: float) -> Iterator[str]:
    threshold = int(timeline.get("threshold") or 0)
    points = _batch(timeline)
    most = max([threshold + 1.0, *(value for _, value in points)])
    yield f'<text x="{LEFT - 6}" y="{BATCH_TOP + 8}" text-anchor="end">{most:.0f}</text>'
    yield f'<text x="{LEFT - 6}" y="{BATCH_TOP + BATCH_HEIGHT}" text-anchor="end">0</text>'
    yield f'<text x="8" y="{BATCH_TOP + BATCH_HEIGHT // 2}">batch</text>'
    if points:
        corners: list[str] = []
        for (time, value), (_, before) in zip(points, [points[0], *points], strict=False):
            corners.append(f"{_x(time, end)},{_y(before, most, BATCH_TOP, BATCH_HEIGHT)}")
            corners.append(f"{_x(time, end)},{_y(value, most, BATCH_TOP, BATCH_HEIGHT)}")
        yield f'<polyline fill="none" stroke="{INK}" stroke-width="1.2" points="{" ".join(corners)}"/>'
    level = _y(threshold, most, BATCH_TOP, BATCH_HEIGHT)
    yield (
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{level}" y2="{level}" stroke="{ALARM}" '
        f'stroke-dasharray="5 3"/><text x="{WIDTH - RIGHT}" y="{level - 3}" text-anchor="end" '
        f'fill="{ALARM}">T={threshold}</text>'
    )


def _draw_states(timeline: Mapping[str, Json], end: float) -> Iterator[str]:
    yield f'<text x="8" y="{STATE_TOP + 12}">gate</text>'
    for start, stop, state in _spells(timeline, end):
        left, right = _x(start, end), _x(stop, end)
        yield (
            f'<rect x="{left}" y="{STATE_TOP}" width="{max(0.5, right - left):.1f}" height="{STATE_HEIGHT}" '
            f'fill="{CLOSED if state == "closed" else OPEN}"><title>{escape(state)}</title></rect>'
        )
    for number, (word, colour) in enumerate((("open", OPEN), ("closed", CLOSED))):
        x = WIDTH - RIGHT - 110 + 55 * number
        yield f'<rect x="{x}" y="8" width="9" height="9" fill="{colour}"/>'
        yield f'<text x="{x + 13}" y="16">{word}</text>'


def _draw_victims(timeline: Mapping[str, Json], end: float) -> Iterator[str]:
    victims: Sequence[Sequence[Sequence[float]]] = timeline.get("victims") or ()
    alones: Sequence[Sequence[Sequence[float]]] = timeline.get("uninterrupted") or ()
    most = max([1.0, *(float(rate) for victim in (*victims, *alones) for _, rate in victim)])
    yield f'<text x="8" y="{RATE_TOP + RATE_HEIGHT // 2 - 6}">tokens</text>'
    yield f'<text x="8" y="{RATE_TOP + RATE_HEIGHT // 2 + 7}">a step</text>'
    for mark in sorted({1.0, round(most, 1)}):
        level = _y(mark, most, RATE_TOP, RATE_HEIGHT)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{level}" y2="{level}" stroke="{FAINT}"/>'
        yield f'<text x="{LEFT - 6}" y="{level + 4}" text-anchor="end">{mark:g}</text>'
    for number, victim in enumerate(victims):
        yield _draw_rates(victim, end, most, VICTIMS[number % len(VICTIMS)], "1.4")
    for number, alone in enumerate(alones):
        yield _draw_rates(alone, end, most, VICTIMS[number % len(VICTIMS)], "0.8", ' stroke-dasharray="2 3"')
    if alones:
        y = RATE_TOP + 12
        yield f'<text x="{WIDTH - RIGHT}" y="{y}" text-anchor="end" fill="{FADED}">dotted: alone</text>'


def _draw_rates(
    points: Sequence[Sequence[float]], end: float, most: float, colour: str, width: str, more: str = ""
) -> str:
    corners = " ".join(
        f"{_x(float(time), end)},{_y(float(rate), most, RATE_TOP, RATE_HEIGHT)}" for time, rate in points
    )
    return f'<polyline fill="none" stroke="{colour}" stroke-width="{width}"{more} points="{corners}"/>'


def _draw_seconds(end: float) -> Iterator[str]:
    step = next((step for step in (1, 2, 5, 10, 20, 30, 60) if end / step <= 15), 120)
    for second in range(0, int(end) + 1, step):
        yield f'<text x="{_x(second, end)}" y="{SECONDS}" text-anchor="middle">{second} s</text>'


def _columns(points: Sequence[Sequence[float]], end: float, width: int) -> list[float | None]:
    """The highest value that falls into each column; None where none does."""
    found: list[float | None] = [None] * width
    for time, value in points:
        column = min(width - 1, int(float(time) / end * width))
        found[column] = max(found[column] or 0.0, float(value))
    return found


def _states(timeline: Mapping[str, Json], end: float, width: int) -> list[str]:
    found = [" "] * width
    for start, stop, state in _spells(timeline, end):
        for column in range(int(start / end * width), min(width, int(stop / end * width) + 1)):
            found[column] = "█" if state == "closed" else "─"
    return found


def _label_spans(timeline: Mapping[str, Json], end: float, width: int) -> str:
    found = [" "] * width
    for name, start, _ in _checks(timeline):
        column = min(width - len(name), int(start / end * width))
        found[column : column + len(name)] = name
    return "".join(found)


def _bar(value: float | None, most: float) -> str:
    if value is None:
        return " "
    return BARS[round(min(1.0, value / most) * (len(BARS) - 1))]
