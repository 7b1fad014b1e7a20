"""The checks of a smoke test: a line as each ends, and a table of all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from specops.ui.terminal import duration, styled
from specops.ui.timeline import view_lines

Json = Any
ROOM = 36
"""Columns of a timeline's own words, left and right of its data."""


def show_checks(console: Console, checks: Iterable[Mapping[str, Json]]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("check", "verdict", "took"):
        table.add_column(name, no_wrap=True)
    table.add_column("what was seen", overflow="fold", ratio=1)
    for check in checks:
        seen = str(check.get("summary") or check.get("title") or "")
        table.add_row(
            str(check.get("id", "")),
            styled(str(check.get("verdict", ""))),
            duration(check.get("seconds")),
            Text(seen),
        )
    console.print(table)


def show_smoke(console: Console, result: Mapping[str, Json]) -> None:
    """The result of `specops smoke` (ARCHITECTURE, SmokeSpec and its result)."""
    checks = list(result.get("checks") or ())
    show_checks(console, checks)
    verdict = str(result.get("verdict", "error"))
    why = f": {result['summary']}" if result.get("summary") else ""
    console.print(Text.assemble("smoke: ", styled(verdict), why))
    for check in checks:
        if check.get("verdict") in {"fail", "error"}:
            console.print(Text(f"  {check.get('id')} {check.get('title', '')}: {check.get('summary', '')}"))
    show_proof(console, result)


def show_proof(console: Console, result: Mapping[str, Json]) -> None:
    """The compact view, and where the whole is kept."""
    for line in view_lines(result.get("timeline") or {}, max(20, console.width - ROOM)):
        console.print(Text(line), no_wrap=True, overflow="crop")
    for path in (result.get("kept") or {}).values():
        console.print(Text(f"kept in {path}", style="dim"), soft_wrap=True)
