"""Human: the events of a host as lines, with its time and name, and documents as tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from rich.console import Console
from rich.text import Text

from specops.engine.outcome import Outcome, cause_line
from specops.errors import SpecopsError
from specops.ui.plain import write_result
from specops.ui.progress import LoadProgress
from specops.ui.terminal import clock, duration, make_console, pairs, row, styled

Json = Any

NOUNS = {
    "plan": "specops.ui.plan:show_plan",
    "facts": "specops.ui.facts:show_facts",
    "smoke": "specops.ui.checks:show_smoke",
    "status": "specops.ui.deploys:show_status",
    "history": "specops.ui.deploys:show_history",
    "records": "specops.ui.measured:show_records",
    "lock": "specops.ui.deploys:show_lock",
    "broken": "specops.ui.deploys:show_broken",
    "evidence": "specops.ui.evidence:show_evidence",
    "clean": "specops.ui.deploys:show_clean",
    "log": "specops.ui.deploys:show_log",
    "patches": "specops.ui.patches:show_patches",
    "patch": "specops.ui.patches:show_patch",
    "rebase": "specops.ui.patches:show_rebase",
    "verification": "specops.ui.patches:show_verification",
    "matrix": "specops.ui.patches:show_matrix",
    "lab": "specops.ui.lab:show_lab",
    "sweep": "specops.ui.levels:show_sweep",
    "timeline": "specops.ui.levels:show_timeline",
    "report": "specops.ui.levels:show_report",
    "comparison": "specops.ui.levels:show_comparison",
    "tuned": "specops.ui.levels:show_tuned",
}
"""Document -> the function that draws it, imported when it is first needed."""

SLOW = frozenset({"rehearse", "stop", "launch", "ready", "smoke"})
"""Phases whose steps are announced when they start; the others are told when they are done."""

INSTANT_S = 0.1
"""A step faster than this is not worth a figure."""

PHASES = 8
"""Width of the column with the phase."""


class Human:
    def __init__(self, console: Console | None = None, *, host: str = "") -> None:
        self._console = console or make_console()
        self._progress = LoadProgress(self._console, self._line)
        self._steps: dict[int, tuple[str, str, float | None]] = {}
        self._checks: dict[str, Mapping[str, Json]] = {}
        self._proof: Mapping[str, Json] = {}
        self._host = host

    def on_event(self, event: dict[str, Json]) -> None:
        match event.get("event"):
            case "journal":
                entry = event.get("entry") or {}
                handler = getattr(self, f"_on_{entry.get('entry')}", None)
                if handler is not None:
                    handler(entry)
            case "progress":
                self._progress.update(event)
            case "check_started" if self._console.is_terminal:
                self._line("smoke", f"{event.get('id')} {event.get('title', '')} …", event.get("at"))
            case "check":
                self._on_check(event)
            case "smoke":
                self._proof = event.get("smoke") or {}
            case "note":
                self._line("note", str(event.get("message", "")), event.get("at"))
            case "level":
                self._progress.end()
                write_result(str(event.get("line", "")))

    def show(self, noun: str, value: Json) -> None:
        self._progress.end()
        place = NOUNS.get(noun)
        if place is None:
            rows = value.items() if isinstance(value, Mapping) else [(noun, value)]
            pairs(self._console, [(str(name), str(each)) for name, each in rows])
            return
        module, _, function = place.partition(":")
        draw: Callable[[Console, Json], None] = getattr(import_module(module), function)
        draw(self._console, value)

    def note(self, message: str) -> None:
        self._progress.end()
        self._console.print(Text(message), soft_wrap=True)

    def outcome(self, outcome: Outcome) -> None:
        from specops.ui.checks import show_checks, show_proof
        from specops.ui.outcome import show_outcome

        self._progress.end()
        if self._checks:
            show_checks(self._console, self._checks.values())
        show_proof(self._console, self._proof)
        show_outcome(self._console, outcome, self._host)

    def error(self, error: SpecopsError) -> None:
        from specops.ui.outcome import show_error

        self._progress.end()
        show_error(self._console, error)

    def close(self) -> None:
        self._progress.end()

    def _line(self, phase: str, text: str | Text, at: float | None = None, *, style: str = "") -> None:
        host = f"{self._host[:16]} " if self._host else ""
        prefix = Text.assemble((clock(at), "dim"), f" {host}{phase:<{PHASES}} ")
        row(self._console, prefix, text if isinstance(text, Text) else Text(text, style=style))

    def _on_opened(self, entry: Mapping[str, Json]) -> None:
        # of the deploy before this one, where a sweep of arms makes several
        self._steps, self._checks, self._proof = {}, {}, {}
        by = entry.get("by") or {}
        who = f" by {by.get('user')}@{by.get('host')}" if by else ""
        text = f"{entry.get('kind', 'deploy')} {entry.get('plan_id', '')}{who}"
        self._line("open", text, at=entry.get("at"))

    def _on_starting(self, entry: Mapping[str, Json]) -> None:
        phase, name = str(entry.get("phase", "")), str(entry.get("name", ""))
        self._steps[int(entry["index"])] = (phase, name, entry.get("at"))
        if phase in SLOW:
            self._line(phase, f"{name} …", at=entry.get("at"))

    def _on_done(self, entry: Mapping[str, Json]) -> None:
        self._progress.end()
        phase, name, began = self._steps.get(int(entry["index"]), ("", f"step {entry['index']}", None))
        at = entry.get("at")
        seconds = at - began if at is not None and began is not None else 0.0
        took = f" ({duration(seconds)})" if seconds >= INSTANT_S else ""
        self._line(phase, Text.assemble(name, " ", styled("ok"), took), at=at)

    def _on_check(self, check: Mapping[str, Json]) -> None:
        known = self._checks.get(str(check.get("id")))
        self._checks[str(check.get("id"))] = {**(known or {}), **check}
        if known is not None and known.get("verdict") == check.get("verdict"):
            # The journal's entry of a check that its own event has already told, or the other way round.
            return
        self._progress.end()
        verdict = styled(str(check.get("verdict", "")))
        text = Text.assemble(f"{check.get('id')} ", verdict, f" {check.get('summary', '')}")
        self._line("smoke", text, at=check.get("at"))

    def _on_verdict(self, entry: Mapping[str, Json]) -> None:
        self._bad("verdict", entry, entry.get("cause"))

    def _on_failed(self, entry: Mapping[str, Json]) -> None:
        phase, name, _ = self._steps.get(int(entry["index"]), ("", f"step {entry['index']}", None))
        self._bad(phase, entry, f"{name}: {cause_line(entry.get('error'))}")

    def _on_evidence(self, entry: Mapping[str, Json]) -> None:
        self._line("evidence", f"kept on the host in {entry.get('path')}", at=entry.get("at"))

    def _on_settling(self, entry: Mapping[str, Json]) -> None:
        self._bad("settle", entry, f"taking everything back: {cause_line(entry.get('cause'))}")

    def _on_undone(self, entry: Mapping[str, Json]) -> None:
        self._progress.end()
        _, name, _ = self._steps.get(int(entry["index"]), ("", f"step {entry['index']}", None))
        self._line("undo", Text.assemble(name, " ", styled("ok")), at=entry.get("at"))

    def _on_undoing(self, entry: Mapping[str, Json]) -> None:
        phase, name, _ = self._steps.get(int(entry["index"]), ("", f"step {entry['index']}", None))
        if phase in SLOW:
            self._line("undo", f"{name} …", at=entry.get("at"))

    def _on_undo_failed(self, entry: Mapping[str, Json]) -> None:
        _, name, _ = self._steps.get(int(entry["index"]), ("", f"step {entry['index']}", None))
        self._bad("undo", entry, f"{name} could not be taken back: {cause_line(entry.get('error'))}")

    def _bad(self, phase: str, entry: Mapping[str, Json], cause: Json) -> None:
        self._progress.end()
        self._line(phase, cause_line(cause), at=entry.get("at"), style="red")
