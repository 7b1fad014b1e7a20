"""A sweep's levels, and the timeline of a smoke test as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from specops.ui.terminal import pairs

Json = Any


def show_sweep(console: Console, sweep: Mapping[str, Json]) -> None:
    """Its lines were printed as they came; here is what is left to say."""
    rows = [(str(name), str(value)) for name, value in sweep.items() if isinstance(value, str | int | float)]
    pairs(console, rows)


def show_timeline(console: Console, lines: list[str]) -> None:
    """Text made elsewhere, a row a line; never wrapped, or its columns would no longer line up."""
    for line in lines:
        console.print(Text(line), no_wrap=True, overflow="crop")
