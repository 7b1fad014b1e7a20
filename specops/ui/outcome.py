"""How it ended, in words; the last line says what is serving now."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from specops.engine.outcome import (
    Deployed,
    Outcome,
    Planned,
    RefusedOnHost,
    RollbackFailed,
    RolledBack,
    StillRunning,
    Unchanged,
)
from specops.errors import SpecopsError
from specops.ui.terminal import command


def show_outcome(console: Console, outcome: Outcome, host: str) -> None:
    at = f" --host {host}" if host else ""
    match outcome:
        case Unchanged(serving=serving):
            _end(console, "unchanged: everything is already as asked", "green", serving)
        case Planned():
            console.print(Text("planned; nothing was changed", style="green"))
        case Deployed(deploy=deploy, serving=serving, inconclusive=()):
            _end(console, f"deployed ({deploy})", "bold green", serving)
        case Deployed(deploy=deploy, serving=serving, inconclusive=checks):
            _end(
                console,
                f"deployed ({deploy}), without a verdict of {', '.join(checks)}",
                "bold yellow",
                serving,
            )
        case RolledBack(deploy=deploy, cause=cause, serving=serving):
            console.print(Text(f"rolled back ({deploy}): {cause}", style="bold red"))
            console.print("To see why:")
            command(console, f"specops evidence show {deploy}{at}")
            _serving(console, serving)
        case RollbackFailed(
            deploy=deploy, cause=cause, failures=failures, serving=serving, next_command=line
        ):
            console.print(Text(f"ROLLBACK FAILED ({deploy}) after: {cause}", style="bold red"))
            for failure in failures:
                console.print(Text(f"  not taken back: {failure}", style="red"))
            console.print("Type next:")
            command(console, f"{line}{at}")
            _serving(console, serving)
        case RefusedOnHost(deploy=deploy, cause=cause, serving=serving, next_command=line):
            console.print(Text(f"refused ({deploy}), nothing was changed: {cause}", style="bold yellow"))
            if line:
                console.print("Type next:")
                command(console, line)
            _serving(console, serving)
        case StillRunning(deploy=deploy, why=why):
            console.print(Text(f"still running ({deploy}): {why}", style="yellow"))
            console.print("The host goes on by itself. To follow it again:")
            command(console, f"specops attach {deploy}{at}")


def show_error(console: Console, error: SpecopsError) -> None:
    console.print(Text(f"specops: {error.message}", style="bold red"), soft_wrap=True)
    if isinstance(error.detail, dict) and isinstance(error.detail.get("diff"), str):
        console.print(Text(error.detail["diff"].rstrip("\n")), soft_wrap=True)
    if error.host_state:
        console.print(Text(f"On the host: {error.host_state}"), soft_wrap=True)
    if error.next_command:
        console.print("Type next:")
        command(console, error.next_command)


def _end(console: Console, line: str, style: str, serving: str) -> None:
    console.print(Text(line, style=style))
    _serving(console, serving)


def _serving(console: Console, serving: str) -> None:
    console.print(Text(f"serving now: {serving}" if serving else "serving now: unknown"))
