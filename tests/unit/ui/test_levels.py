"""A sweep's table: nothing of it is cut off, however narrow the terminal is."""

from __future__ import annotations

import pytest
from rich.console import Console

from specops.sweep.report.tables import HEADS, as_rows
from specops.sweep.runs import parse_sweep
from specops.ui.levels import show_sweep
from tests.unit.sweep.made import LEVELS, make_level

TAINTS = ["client_limited", "foreign traffic: 4 requests of others ended"]


@pytest.mark.parametrize("width", [72, 80, 120, 200])
def test_every_row_is_whole_and_doubts_are_told_below(width: int) -> None:
    levels = [
        make_level(arm, c, repeat, 100.0 * c + repeat, taints=TAINTS if c == 5 else [])
        for arm in ("no-spec", "always-on")
        for c in LEVELS
        for repeat in (1, 2)
    ]
    rows = as_rows(parse_sweep({"levels": levels}, "x"))
    console = Console(width=width, record=True, file=open("/dev/null", "w"), color_system=None)  # noqa: SIM115
    with console.file:
        show_sweep(console, {"heads": list(HEADS), "rows": rows, "ended": "finished"})
        lines = console.export_text().splitlines()
    assert "…" not in "".join(lines)
    assert all(len(line.rstrip()) <= width for line in lines)
    table = [line.split() for line in lines[1 : 1 + len(rows)]]
    assert [words[:3] for words in table] == [row[:3] for row in rows], "a line a row"
    assert ("per request" in lines[0]) == (width == 200)
    told = " ".join(" ".join(lines[1 + len(rows) :]).split())
    assert "no-spec 5 client_limited; foreign traffic: 4 requests of others ended" in told
