"""Following a deploy that the host runs by itself: through Ctrl-C, and through a link that breaks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from specops.cli.reach import Reach
from specops.engine.outcome import Outcome, StillRunning, from_closed
from specops.errors import HostUnreachable, LinkLost

Json = Any
SECOND_THOUGHT_S = 3.0
"""After a first Ctrl-C, how long a second one is waited for."""

RECONNECT_FOR_S = 300.0
RECONNECT_EVERY_S = 5.0


class Follower:
    """One deploy, from the request that starts or joins it to its end."""

    def __init__(self, at: Reach) -> None:
        self._at = at
        self._seq = 0
        self._deploy = ""

    def run(self, plan: Any, *, why: str) -> Outcome:
        """Start a plan (engine.plan.Plan) on the host and follow it."""
        self._deploy = plan.id
        params = {"plan": plan.as_wire(), "blobs": plan.blobs_as_wire(), "why": why}
        return self._need(self._to_its_end(lambda: self._call("run", params)))

    def attach(self, deploy: str | None) -> Outcome:
        """Follow a deploy that runs, or tell how it ended; the latest one where None."""
        self._deploy = deploy or ""
        return self._need(self._to_its_end(self._follow))

    def recover(self, deploy: str | None) -> Outcome | None:
        """End what never ended; None where there is nothing to end."""
        params = {"instance": self._at.place.reference(), **({"deploy": deploy} if deploy else {})}
        return self._to_its_end(lambda: self._call("recover", params))

    def _to_its_end(self, request: Callable[[], Json]) -> Outcome | None:
        try:
            try:
                value = request()
            except LinkLost as lost:
                value = self._reconnect(lost)
        except KeyboardInterrupt:
            return self._interrupted()
        if not isinstance(value, dict) or value.get("deploy") is None:
            return None
        return from_closed(value["deploy"], {**value, "checks": value.get("inconclusive") or ()})

    def _need(self, outcome: Outcome | None) -> Outcome:
        return outcome or StillRunning(deploy=self._deploy, why="the host did not say how it ended")

    def _call(self, verb: str, params: dict[str, Json]) -> Json:
        return self._at.connector.call(verb, params, on_event=self._on_event)

    def _follow(self) -> Json:
        params: dict[str, Json] = {"instance": self._at.place.reference(), "from_seq": self._seq}
        if self._deploy:
            params["deploy"] = self._deploy
        return self._call("follow", params)

    def _on_event(self, event: dict[str, Json]) -> None:
        self._seq = max(self._seq, int(event.get("seq") or 0))
        entry = event.get("entry")
        if isinstance(entry, dict) and entry.get("entry") == "opened":
            self._deploy = str(entry.get("plan_id") or self._deploy)
        self._at.output.on_event(event)

    def _reconnect(self, lost: LinkLost) -> Json:
        """The host goes on by itself; try to see it again for a while, then say so."""
        self._at.output.note(f"{lost.message}; connecting again")
        end = time.monotonic() + RECONNECT_FOR_S
        while True:
            try:
                return self._follow()
            except (HostUnreachable, LinkLost):
                if time.monotonic() > end:
                    raise lost from None
            time.sleep(RECONNECT_EVERY_S)

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
        self._at.ask("abort", reason="Ctrl-C of the operator")
        return self._to_its_end(self._follow)
