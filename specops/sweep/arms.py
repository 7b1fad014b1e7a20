"""Arms: the ways to run one model that a sweep compares, and the order in which they are measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from specops.config.playbook import Playbook
from specops.errors import UsageError

Json = Any
NO_SPEC, ALWAYS_ON, GATED, ALWAYS_OFF = "no-spec", "always-on", "gated", "always-off"
NAMES = (NO_SPEC, ALWAYS_ON, GATED, ALWAYS_OFF)
MEANINGS = {
    NO_SPEC: "a launch of its own without speculation and without patches of ours",
    ALWAYS_ON: "speculation at every batch size",
    GATED: "speculation up to a running batch of T",
    ALWAYS_OFF: "the gate's closed state at every batch size",
}
OPEN = 1_000_000
"""A live threshold that no batch exceeds."""
SPECULATING = (ALWAYS_ON,)
PLAIN = (NO_SPEC, ALWAYS_OFF)
"""Arms without speculation, the one that a claim of speed needs first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Visit:
    """One time that an arm's server is up."""

    arm: str
    repeats: int
    first_repeat: int


def parse_arms(text: str) -> tuple[str, ...]:
    """`no-spec,always-on,gated`. Raises UsageError."""
    names = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    wrong = [name for name in names if name not in NAMES]
    if wrong:
        raise UsageError(f"--arms {text}: {wrong[0]!r} is none of {', '.join(NAMES)}")
    return names


def live_arms(names: Sequence[str], threshold: int) -> list[dict[str, Json]]:
    """For the child: thresholds of one load. Raises UsageError for what takes a launch of its own."""
    if NO_SPEC in names:
        raise UsageError(
            "--live: no-spec is always a launch of its own; always-off is what one load can show"
        )
    of = {ALWAYS_ON: OPEN, GATED: threshold, ALWAYS_OFF: 0}
    return [{"name": name, "threshold": of[name]} for name in names]


def order_visits(names: Sequence[str], repeats: int) -> tuple[list[Visit], list[Visit]]:
    """(on the way up, on the way back): A B C, then B A. Going back is rolling back: what served before the
    last arm serves again, so each of those launches is measured and a drift shows as spread."""
    forward = [
        Visit(arm=name, repeats=repeats if name == names[-1] else math.ceil(repeats / 2), first_repeat=1)
        for name in names
    ]
    back = [
        Visit(arm=visit.arm, repeats=repeats - visit.repeats, first_repeat=visit.repeats + 1)
        for visit in reversed(forward[:-1])
        if repeats > visit.repeats
    ]
    return forward, back


def arm_playbook(playbook: Playbook, arm: str, levels: Sequence[int]) -> Playbook:
    """What is deployed for an arm. Each admits the same number of requests, so that none queues alone.

    Raises UsageError for an arm that cannot be launched.
    """
    if arm == ALWAYS_OFF:
        raise UsageError("always-off is a live threshold of 0: no launch shows it")
    if playbook.draft is None and arm != NO_SPEC:
        raise UsageError(f"arm {arm}: the playbook has no draft")
    most = max([playbook.server.max_running_requests or 0, playbook.gate.threshold + 5, *levels])
    server = replace(playbook.server, max_running_requests=most)
    book = replace(playbook, name=f"{playbook.name}/{arm}", server=server)
    if arm == NO_SPEC:
        server = replace(server, args=without_speculation(server.args))
        return replace(book, draft=None, server=server, gate=replace(book.gate, kind="none"), patches=())
    if arm == ALWAYS_ON:
        return replace(book, gate=replace(book.gate, kind="none"))
    return book


def without_speculation(args: Any) -> dict[str, Any]:
    return {name: value for name, value in args.items() if not name.startswith("speculative-")}


def announce(
    names: Sequence[str], points: int, repeats: int, window_s: float | None, load_s: float | None
) -> str:
    """One sentence before anything starts. `points`: levels and rates; `load_s`: of an earlier load
    of this model here, if there was one."""
    forward, back = order_visits(names, repeats)
    loads = len(forward) + len(names)
    measured = points * repeats * len(names)
    time = f", {window_s:g} s each and what filling and draining takes" if window_s else ""
    order = " ".join(visit.arm for visit in (*forward, *back))
    words = f"{measured} measurements{time}, and {loads} loads of the server, the old one's included: {order}"
    if load_s is None:
        return f"{words}; no load of this model was measured here yet"
    whole_s = loads * load_s + measured * (window_s or 0.0)
    least = "" if window_s else " for the loads alone"
    return f"{words}; about {max(1, round(whole_s / 60))} min{least}, at {load_s:.0f} s a load"
