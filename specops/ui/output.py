"""Output: where a command says things, in one of two forms that carry the same facts."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from specops.engine.outcome import Outcome
    from specops.errors import SpecopsError

Json = Any


class Output(Protocol):
    def on_event(self, event: dict[str, Json]) -> None:
        """One event of the host or of the engine (ARCHITECTURE, Events), as it happens."""

    def show(self, noun: str, value: Json) -> None:
        """A document: `facts`, `plan`, `status`, `history`, `lock`, `patches`, … as JSON."""

    def note(self, message: str) -> None: ...

    def outcome(self, outcome: Outcome) -> None:
        """How it ended; its last line says what is serving now."""

    def error(self, error: SpecopsError) -> None: ...

    def close(self) -> None:
        """End whatever is still drawn; harmless twice."""


def make_output(*, as_json: bool, host: str = "") -> Output:
    """`host` is the name that people see in every line."""
    if as_json:
        return JsonLines()
    from specops.ui.human import Human

    return Human(host=host)


class JsonLines:
    """One object a line: `event` names its kind, as in the events of the host."""

    def on_event(self, event: dict[str, Json]) -> None:
        self._write(event)

    def show(self, noun: str, value: Json) -> None:
        self._write({"event": noun, noun: value})

    def note(self, message: str) -> None:
        self._write({"event": "note", "message": message})

    def outcome(self, outcome: Outcome) -> None:
        from dataclasses import asdict

        from specops.engine.outcome import exit_code, how

        self._write(
            {"event": "outcome", "how": how(outcome), "exit_code": exit_code(outcome), **asdict(outcome)}
        )

    def error(self, error: SpecopsError) -> None:
        self._write(
            {
                "event": "error",
                "error": type(error).__name__,
                "message": error.message,
                "host_state": error.host_state,
                "next_command": error.next_command,
                "detail": error.detail,
                "exit_code": error.exit_code,
            }
        )

    def close(self) -> None:
        """Nothing is drawn."""

    def _write(self, line: Mapping[str, Json]) -> None:
        sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
        sys.stdout.flush()
