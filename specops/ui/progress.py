"""The load of a server: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from specops.ui.terminal import about, duration

Json = Any
QUIET_S = 10.0
"""Between two plain lines of one milestone."""


class LoadProgress:
    def __init__(self, console: Console, say: Callable[[str, str, float | None], None]) -> None:
        self._console = console
        self._say = say
        """Called with the phase, the text and the time of a line."""
        self._bar: tuple[Progress, TaskID] | None = None
        self._last: tuple[str, float] = ("", 0.0)

    def update(self, event: Mapping[str, Json]) -> None:
        if self._console.is_terminal:
            self._draw(event)
        else:
            self._tell(event)

    def end(self) -> None:
        if self._bar is not None:
            self._bar[0].stop()
            self._bar = None
        self._last = ("", 0.0)

    def _draw(self, event: Mapping[str, Json]) -> None:
        if self._bar is None:
            bar = Progress(
                TextColumn("  {task.description}"),
                BarColumn(bar_width=20),
                TextColumn("{task.fields[rest]}"),
                console=self._console,
                transient=True,
            )
            self._bar = (bar, bar.add_task("", total=None, rest=""))
            bar.start()
        bar, task = self._bar
        told, told_s = self._last
        milestone, elapsed_s = str(event.get("milestone", "")), float(event.get("elapsed_s") or 0.0)
        if told and milestone != told:
            self._say(str(event.get("phase", "")), f"{told} ({duration(elapsed_s)})", event.get("at"))
        self._last = (milestone, told_s)
        fraction = event.get("fraction")
        bar.update(
            task,
            description=milestone[:34],
            total=None if fraction is None else 1.0,
            completed=fraction or 0.0,
            rest=_rest(event),
        )

    def _tell(self, event: Mapping[str, Json]) -> None:
        milestone, elapsed_s = str(event.get("milestone", "")), float(event.get("elapsed_s") or 0.0)
        told, told_s = self._last
        if milestone == told and elapsed_s - told_s < QUIET_S:
            return
        self._last = (milestone, elapsed_s)
        self._say(str(event.get("phase", "ready")), f"{milestone} ({_rest(event)})", event.get("at"))


def _rest(event: Mapping[str, Json]) -> str:
    parts = []
    if event.get("fraction") is not None:
        parts.append(f"{round(100 * float(event['fraction']))} %")
    parts.append(duration(float(event.get("elapsed_s") or 0.0)))
    if event.get("eta_s") is not None:
        until = " until the weights are read" if event.get("eta_of") == "weights" else " to go"
        parts.append(f"{about(float(event['eta_s']))}{until}")
    if event.get("activity"):
        parts.append(str(event["activity"]))
    return ", ".join(parts)
