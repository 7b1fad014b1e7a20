"""Sends a plan to its host, or follows, ends or recovers what runs there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from specops.connect.base import Connector, OnEvent, Withheld
from specops.engine.outcome import Outcome, Planned, StillRunning, Unchanged, from_closed
from specops.errors import HostUnreachable, LinkLost, SpecopsError

if TYPE_CHECKING:
    from specops.engine.place import Place
    from specops.engine.plan import Plan

Json = Any


def run_plan(plan: Plan, connector: Connector, on_event: OnEvent, *, secrets: Mapping[str, str]) -> Outcome:
    """Start the plan on its host and follow it to its end; the host goes on without us.

    Raises what the agent refuses before anything changed, and LinkLost where the link broke and the host
    could not be reached again to read the journal.
    """
    params = {
        "plan": plan.as_wire(),
        "blobs": plan.blobs_as_wire(),
        "secrets": dict(secrets),
        "why": f"{plan.kind} by specops",
    }
    seen = Seen(on_event)
    try:
        answer = connector.call("run", params, on_event=seen)
    except LinkLost:
        answer = _reconnect(plan, params, connector, seen)
    return outcome_of(answer, plan.id)


class Seen:
    """Passes events on, and remembers how far, so that following again repeats none."""

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self.seq = 0

    def __call__(self, event: dict[str, Json]) -> None:
        self.seq = max(self.seq, int(event.get("seq") or 0))
        self._on_event(event)


def _reconnect(plan: Plan, params: Mapping[str, Json], connector: Connector, seen: Seen) -> Json:
    """One more connection: the journal knows what became of the plan. Raises LinkLost, or what the host says.

    Where the host has no such deploy, the plan is sent once more. What was left of the first request may
    still arrive; whichever comes first becomes the deploy, and its id keeps the other from being one too.
    """
    following = {"instance": dict(plan.instance), "deploy": plan.id}
    try:
        try:
            return connector.call("follow", {**following, "from_seq": seen.seq}, on_event=seen)
        except SpecopsError as error:
            if error.code != "no_deploy":
                raise
        try:
            return connector.call("run", params, on_event=seen)
        except SpecopsError as error:
            if not _is_running(plan.id, error):
                raise
        return connector.call("follow", {**following, "from_seq": seen.seq}, on_event=seen)
    except (HostUnreachable, LinkLost) as error:
        raise LinkLost(
            f"the link to {plan.host} broke after the plan was sent, and it cannot be reached again: {error}",
            host_state=f"unknown; deploy {plan.id}, if it was started, goes on by itself",
            next_command=f"specops attach --host {plan.host}",
        ) from error


def _is_running(deploy: str, error: SpecopsError) -> bool:
    """Whether a run was refused because this very deploy was there first."""
    owner = error.detail if isinstance(error.detail, Mapping) else {}
    return error.code == "run_already" or deploy in (owner.get("deploy"), owner.get("id"))


def outcome_of(answer: Json | Withheld, deploy: str) -> Outcome:
    if isinstance(answer, Withheld):
        return Planned()
    if not isinstance(answer, dict) or answer.get("how") is None:
        return StillRunning(deploy=deploy, why="nobody follows any more; the host goes on by itself")
    if answer["how"] == "nothing to recover":
        return Unchanged(serving="nothing to recover: every deploy of this instance has ended")
    closed = {**answer, "checks": answer.get("inconclusive")}
    return from_closed(str(answer.get("deploy") or deploy), closed)


def attach(place: Place, connector: Connector, on_event: OnEvent, deploy: str | None = None) -> Outcome:
    """Follow a deploy from its first event, also one that has ended; the latest where none is named."""
    answer = connector.call("follow", {"instance": place.reference(), "deploy": deploy}, on_event=on_event)
    return outcome_of(answer, deploy or "latest")


def recover(place: Place, connector: Connector, on_event: OnEvent, *, force: bool) -> Outcome:
    """End an unfinished deploy from the host's journal alone."""
    params = {"instance": place.reference(), "force": force}
    answer = connector.call("recover", params, on_event=on_event)
    return outcome_of(answer, "unfinished")


def abort(place: Place, connector: Connector, reason: str) -> Json:
    return connector.call("abort", {"instance": place.reference(), "reason": reason})


def break_lock(place: Place, connector: Connector, reason: str, *, force: bool) -> Json:
    return connector.call("lock_break", {"instance": place.reference(), "reason": reason, "force": force})
