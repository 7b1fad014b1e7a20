"""Page: one HTML file that needs nothing but itself: no script, no network, light and dark."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from specops.sweep.crossover import Crossover
from specops.sweep.report.chart import Chart
from specops.sweep.report.curves import draw_curves, draw_rate_curves
from specops.sweep.report.style import STYLE
from specops.sweep.report.svg import draw_svg
from specops.sweep.report.tables import HEADS, as_rows
from specops.sweep.runs import Sweep, tainted
from specops.sweep.verdict import decide, gains_of_gate, plain_arm, unequal_room

Json = Any


def make_page(sweep: Sweep) -> str:
    crossover = decide(sweep)
    by_rate = draw_rate_curves(sweep)
    parts = [
        f"<h1>{escape(title_of(sweep))}</h1>",
        _lead(sweep, crossover),
        _charts(draw_curves(sweep, crossover)),
        _section("By rate of requests", _charts(by_rate)) if by_rate else "",
        _gain_table(sweep, crossover),
        _section("Every level", _level_table(sweep)),
        _doubts(sweep),
        _section("What was measured", _pairs(_about(sweep))),
        _repeat(sweep),
        _data(sweep),
    ]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{escape(title_of(sweep))}</title><style>{STYLE}</style>"
    )
    body = "\n".join(part for part in parts if part)
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><main>\n{body}\n</main></body></html>\n'
    )


def title_of(sweep: Sweep) -> str:
    day = time.strftime("%Y-%m-%d %H:%M", time.gmtime(sweep.started))
    over = "request rate" if sweep.only_rates else "concurrency"
    also = " and request rate" if sweep.has_rates and not sweep.only_rates else ""
    return f"{sweep.host}: {', '.join(sweep.arms)} over {over}{also}, {day} UTC"


def _charts(charts: Sequence[Chart]) -> str:
    if not charts:
        return ""
    figures = "\n".join(f"<figure>{draw_svg(chart)}</figure>" for chart in charts)
    return f'<div class="charts">\n{figures}\n</div>'


def _lead(sweep: Sweep, crossover: Crossover | None) -> str:
    if crossover is None and sweep.only_rates:
        words = "Measured by rate of requests only: a crossover is found by levels of concurrency."
    elif crossover is None:
        words = "These arms do not show a crossover: it takes always-on and one arm without speculation."
    else:
        words = f"{crossover.sentence()}. Compared: always-on with {plain_arm(sweep)}."
    lines = [f'<p class="lead" id="verdict">{escape(words[:1].upper() + words[1:])}</p>']
    if sweep.ended not in ("finished", "?"):
        lines.append(f'<p class="warn">The sweep ended early: {escape(sweep.ended)}</p>')
    return "\n".join(lines)


def _gain_table(sweep: Sweep, crossover: Crossover | None) -> str:
    if crossover is None or crossover.threshold < 1:
        return ""
    gains = gains_of_gate(sweep, crossover.threshold)
    honest = all(gain.claim for gain in gains)
    plain = "over no speculation" if honest else "over the closed gate or no speculation"
    rows = [
        [
            str(gain.at_once),
            f"{gain.gated:.1f}{'' if gain.measured else ' *'}",
            "" if gain.over_plain is None else f"{gain.over_plain:+.1f}",
            "" if gain.over_always_on is None else f"{gain.over_always_on:+.1f}",
        ]
        for gain in gains
    ]
    note = "<p>* put together from the two states; the gated server itself was not measured at this T.</p>"
    put_together = not all(gain.measured for gain in gains)
    table = _table(("C", f"gated at T={crossover.threshold}, tok/s", plain, "over always-on"), rows)
    return _section("What a gate at T brings", table + (note if put_together else ""))


def _level_table(sweep: Sweep) -> str:
    """Doubts are sentences, and stand below."""
    rows = [[*row[:-1], "!" if row[-1] else ""] for row in as_rows(sweep)]
    return f'<div class="levels">{_table(HEADS, rows)}</div>'


def _doubts(sweep: Sweep) -> str:
    found = [level for level in sweep.levels if level.taints]
    unknown = sorted({str(word) for level in sweep.levels for word in level.raw.get("unknown") or ()})
    unequal = unequal_room(sweep)
    if not found and not unknown and not unequal:
        return _section("Doubts", "<p>None: no error, no retraction, no queueing, no foreign traffic.</p>")
    items = [unequal] if unequal else []
    items += [
        f"{level.arm}, {level.load}, repeat {level.repeat}: {'; '.join(level.taints)}" for level in found
    ]
    lines = [f"<li>{escape(item)}</li>" for item in items]
    lines += [f"<li>not observable here: {escape(word)}</li>" for word in unknown]
    return _section(f"Doubts ({len(tainted(found))})", f"<ul>{''.join(lines)}</ul>")


def _about(sweep: Sweep) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in sweep.about.items():
        if name in ("command", "server", "arms") or value is None:
            continue
        rows.append((name, _words(value)))
    rows += [(f"arm {arm.get('name')}", _words({k: v for k, v in arm.items() if k != "name"}))
             for arm in sweep.about.get("arms") or ()]  # fmt: skip
    server = sweep.about.get("server") or {}
    rows += [(f"--{name.replace('_', '-')}", _words(value)) for name, value in server.items()]
    return rows


def _words(value: Json) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_words(each)}" for key, each in value.items() if each is not None)
    if isinstance(value, list | tuple):
        return " ".join(_words(each) for each in value)
    return str(value)


def _repeat(sweep: Sweep) -> str:
    command = sweep.about.get("command")
    if not command:
        return ""
    return _section("How to repeat it", f"<pre>{escape(str(command))}</pre>")


def _section(title: str, inner: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{inner}</section>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _pairs(rows: Sequence[tuple[str, str]]) -> str:
    cells = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in rows)
    return f"<dl>{cells}</dl>"


def _data(sweep: Sweep) -> str:
    """The measurements themselves, so that the page alone is enough to work on."""
    raw = [{key: value for key, value in level.raw.items() if key != "line"} for level in sweep.levels]
    text = json.dumps(raw, ensure_ascii=False).replace("<", "\\u003c")
    return f'<script type="application/json" id="levels">{text}</script>'
