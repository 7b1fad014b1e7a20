"""Following a deploy that the host runs by itself; Ctrl-C lets go of it, a second one asks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from specops.cli.reach import Reach
from specops.engine import deploy as engine
from specops.engine.outcome import Outcome, StillRunning
from specops.engine.plan import Plan
from specops.errors import SpecopsError

Json = Any
SECOND_THOUGHT_S = 3.0
"""After a first Ctrl-C, how long a second one is waited for."""


class Follower:
    """One deploy, from the request that starts or joins it to its end."""

    def __init__(self, at: Reach) -> None:
        self._at = at
        self._seq = 0
        self._deploy = ""

    def run(self, plan: Plan) -> Outcome:
        """Start a plan on the host and follow it; a withholding connector makes this a dry run."""
        self._deploy = plan.id
        return self._to_its_end(
            lambda: engine.run_plan(plan, self._at.connector, self._on_event, secrets=plan.secrets)
        )

    def attach(self, deploy: str | None) -> Outcome:
        """Follow a deploy that runs, or tell how it ended; the latest one where None."""
        self._deploy = deploy or ""
        return self._to_its_end(self._follow)

    def recover(self, *, force: bool) -> Outcome:
        at = self._at
        return self._to_its_end(lambda: engine.recover(at.place, at.connector, self._on_event, force=force))

    def _follow(self) -> Outcome:
        return engine.attach(self._at.place, self._at.connector, self._on_event, self._deploy or None)

    def _to_its_end(self, request: Callable[[], Outcome]) -> Outcome:
        try:
            return request()
        except KeyboardInterrupt:
            return self._interrupted()

    def _on_event(self, event: dict[str, Json]) -> None:
        """Following again starts from the first event: what was shown is not shown twice."""
        seq = int(event.get("seq") or 0)
        if seq and seq <= self._seq:
            return
        self._seq = max(self._seq, seq)
        entry = event.get("entry")
        if isinstance(entry, dict) and entry.get("entry") == "opened":
            self._deploy = str(entry.get("plan_id") or self._deploy)
        if event.get("event") == "smoke":
            event = self._keep(event)
        self._at.output.on_event(event)

    def _keep(self, event: dict[str, Json]) -> dict[str, Json]:
        """What a deploy proved outlives the terminal; where it cannot be kept, a note says so."""
        from specops.ui.keep import keep_proof

        result = event.get("smoke") or {}
        try:
            kept = keep_proof(self._at.place.host, result, str(event.get("deploy") or self._deploy))
        except SpecopsError as error:
            self._at.output.note(error.message)
            return event
        return {**event, "smoke": {**result, "kept": kept}}

    def _interrupted(self) -> Outcome:
        """Detach; a second Ctrl-C asks whether to roll back."""
        detached = StillRunning(deploy=self._deploy, why="detached by Ctrl-C")
        if not sys.stdin.isatty():
            return detached
        self._at.output.note("detaching; Ctrl-C once more to be asked about rolling back")
        try:
            time.sleep(SECOND_THOUGHT_S)
        except KeyboardInterrupt:
            return self._abort() or detached
        return detached

    def _abort(self) -> Outcome | None:
        from specops.ui.ask import confirm

        try:
            if not confirm("Stop this deploy and take back what it did?", assume_yes=False):
                return None
        except KeyboardInterrupt:
            return None
        engine.abort(self._at.place, self._at.connector, "Ctrl-C of the operator")
        return self._to_its_end(self._follow)
