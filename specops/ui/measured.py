"""Smoke tests and sweeps of a host's history, and what this machine remembers of all hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from specops.engine.words import since
from specops.ui.levels import show_table
from specops.ui.terminal import STYLES, duration

Json = Any


def show_measured(console: Console, history: Mapping[str, Json]) -> None:
    """A line each; their figures are in the files that they name."""
    for smoke in history.get("smokes") or ():
        verdict = str(smoke.get("verdict"))
        checks = " ".join(f"{c.get('id')}:{c.get('verdict')}" for c in smoke.get("checks") or ())
        _line(console, smoke, "smoke", verdict, checks)
    for sweep in history.get("sweeps") or ():
        _line(console, sweep, "sweep", str(sweep.get("ended")), sweep_words(sweep))


def sweep_words(sweep: Mapping[str, Json]) -> str:
    """`always-on, no-spec: 24 measurements, C=1 to 100, 0.5 to 8 requests/s`."""
    levels = sweep.get("levels") or ()
    arms = ", ".join(dict.fromkeys(str(level.get("arm")) for level in levels))
    rates = sorted({float(level["rate"]) for level in levels if level.get("rate") is not None})
    at_once = sorted({int(level["C"]) for level in levels if level.get("rate") is None and level.get("C")})
    span = f", C={at_once[0]} to {at_once[-1]}" if at_once else ""
    span += f", {rates[0]:g} to {rates[-1]:g} requests/s" if rates else ""
    return f"{arms}: {len(levels)} measurements{span}"


def _line(console: Console, what: Mapping[str, Json], kind: str, how: str, words: str) -> None:
    started, closed = what.get("started"), what.get("closed")
    took = f", {duration(closed - started)}" if started and closed else ""
    style = STYLES.get(how, "")
    line = Text.assemble(f"{what.get('id')}  {kind}  ", (how, style), f"  {since(started)}{took}  {words}")
    console.print(line, soft_wrap=True)


def show_records(console: Console, records: Sequence[Mapping[str, Json]]) -> None:
    """One row each, newest first."""
    if not records:
        console.print("nothing is remembered here; specops history asks a host")
        return
    rows = [
        [
            f"{record['host']}:{record['port']}",
            since(record["at"]),
            str(record["kind"]),
            str(record["id"]),
            str(record["release"] or ""),
            str(record["how"]),
        ]
        for record in records
    ]
    show_table(console, ["host", "when", "what", "id", "release", "how"], rows)
