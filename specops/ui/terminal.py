"""The terminal: one rich console on stderr, and lines that wrap under their own column."""

from __future__ import annotations

import re
import time

from rich.console import Console
from rich.text import Text

STYLES = {
    "pass": "green",
    "ok": "green",
    "fail": "bold red",
    "error": "bold red",
    "inconclusive": "yellow",
    "refused": "yellow",
}


def make_console() -> Console:
    """Plain lines without colour where stderr is no terminal; 80 columns there unless COLUMNS says more."""
    return Console(stderr=True, highlight=False, emoji=False, markup=False)


def clock(at: float | None) -> str:
    """Local time of day of unix seconds, now where None."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def styled(word: str) -> Text:
    return Text(word, style=STYLES.get(word, ""))


def duration(seconds: float | None) -> str:
    """`0.4 s`, `42 s`, `3 min 10 s`; empty where unknown."""
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


def about(seconds: float) -> str:
    """An estimate, without digits that it does not have."""
    if seconds < 90:
        return f"about {max(5, round(seconds / 5) * 5)} s"
    return f"about {round(seconds / 60)} min"


def row(console: Console, prefix: str | Text, body: str | Text) -> None:
    """A line whose body wraps under itself. Nothing is padded, and no word is broken: a path stays one."""
    first = prefix if isinstance(prefix, Text) else Text(prefix)
    text = body if isinstance(body, Text) else Text(body)
    width = max(20, console.width - first.cell_len)
    for number, line in enumerate(text.divide(breaks(text.plain, width))):
        line.rstrip()
        start = first if number == 0 else Text(" " * first.cell_len)
        console.print(Text.assemble(start, line), soft_wrap=True)


def breaks(text: str, width: int) -> list[int]:
    """Where to break `text` into lines of at most `width`: at its own line ends and before words.

    `(0.4 s)` counts as a word.
    """
    places, start = [], 0
    for match in re.finditer(r"\n|\(\S+ s\)|\S+", text):
        if match[0] == "\n":
            places.append(match.end())
            start = match.end()
        elif match.end() - start > width and match.start() > start:
            places.append(match.start())
            start = match.start()
    return places


def heading(console: Console, text: str) -> None:
    console.print(Text(text, style="bold"))


def pairs(console: Console, rows: list[tuple[str, str]]) -> None:
    """Name and value, a line each; values wrap under themselves."""
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        row(console, Text(f"  {name:<{width}} ", style="dim"), value)


def command(console: Console, line: str) -> None:
    """Something to type: never broken by us, so that it can be copied."""
    console.print(Text(f"  {line}", style="cyan"), soft_wrap=True)
