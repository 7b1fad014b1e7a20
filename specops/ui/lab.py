"""The lab: what of it is up, and where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from specops.ui.terminal import pairs

Json = Any


def show_lab(console: Console, lab: Mapping[str, Json] | None) -> None:
    """The state of a lab, or None where there is none."""
    if not lab:
        console.print(Text("the lab is down"))
        return
    pairs(console, [(str(name).replace("_", " "), str(value)) for name, value in lab.items()])
