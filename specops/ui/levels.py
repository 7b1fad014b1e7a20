"""A sweep's levels, what they say, and the timeline of a smoke test, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from specops.ui.terminal import command, heading, pairs

Json = Any
SHORT = {"latency.p50": "latency p50", "ttft.p50": "TTFT p50", "itl.avg": "ITL mean"}


DOUBTS = "doubts"
SPARE = ("n", "batch", "per request", "spread", "tok/verify", "ITL mean/p99", "TTFT p50/p99")
"""Columns that a narrow terminal goes without, first to last; the page and the file have them all."""
GAP = 2


def show_sweep(console: Console, sweep: Mapping[str, Json]) -> None:
    """Its lines were printed as they came; here are the table and what is left to say."""
    if sweep.get("rows"):
        show_rows(console, list(sweep.get("heads") or ()), [list(row) for row in sweep["rows"]])
    rows = [(str(name), str(value)) for name, value in sweep.items() if isinstance(value, str | int | float)]
    pairs(console, rows)


def show_rows(console: Console, heads: list[str], rows: list[list[str]]) -> None:
    """A row an arm and level; doubts are sentences, and stand below."""
    doubts = [(" ".join(row[:2]), row[-1]) for row in rows if heads[-1:] == [DOUBTS] and row[-1]]
    if heads[-1:] == [DOUBTS]:
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    for name in SPARE:
        widths = [max(len(line[at]) for line in (heads, *rows)) for at in range(len(heads))]
        if sum(widths) + GAP * len(widths) <= console.width:
            break
        if name in heads:
            at = heads.index(name)
            heads, rows = heads[:at] + heads[at + 1 :], [row[:at] + row[at + 1 :] for row in rows]
    show_table(console, heads, rows)
    if doubts:
        heading(console, "doubts (arm and C)")
        pairs(console, doubts)


def show_table(console: Console, heads: list[str], rows: list[list[str]]) -> None:
    table = Table(box=None, padding=(0, GAP, 0, 0), header_style="bold")
    for number, name in enumerate(heads):
        table.add_column(name, justify="left" if number == 0 or number == len(heads) - 1 else "right")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def show_report(console: Console, report: Mapping[str, Json]) -> None:
    pairs(console, [(name, str(value)) for name, value in report.items() if value])


def show_comparison(console: Console, comparison: Mapping[str, Json]) -> None:
    heading(console, f"{comparison.get('before')} -> {comparison.get('after')}")
    rows = [
        [
            str(d["arm"]), str(d["C"]) if d.get("rate") is None else f"{d['rate']:g}/s",
            SHORT.get(d["figure"], str(d["figure"])),
            f"{d['before']:.4g} {d['unit']}", f"{d['after']:.4g} {d['unit']}", str(d["words"]),
        ]
        for d in comparison.get("differences") or ()
    ]  # fmt: skip
    show_table(console, ["arm", "C", "figure", "before", "after", "change"], rows)
    conditions = comparison.get("conditions") or ()
    if conditions:
        heading(console, "measured under other conditions")
        pairs(console, [(name, f"{one} -> {other}") for name, one, other in conditions])


def show_tuned(console: Console, tuned: Mapping[str, Json]) -> None:
    heading(console, str(tuned.get("verdict")))
    rows = [
        [str(g["C"]), f"{g['gated']:.1f}", _signed(g["over_plain"]), _signed(g["over_always_on"])]
        for g in tuned.get("gains") or ()
    ]
    if rows:
        show_table(console, ["C", "gated tok/s", "over no speculation", "over always-on"], rows)
    pairs(console, [(name, str(tuned[name])) for name in ("written", "page", "kept in") if tuned.get(name)])
    if tuned.get("next"):
        command(console, str(tuned["next"]))


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.1f}"


def show_timeline(console: Console, lines: list[str]) -> None:
    """Text made elsewhere, a row a line; never wrapped, or its columns would no longer line up."""
    for line in lines:
        console.print(Text(line), no_wrap=True, overflow="crop")
