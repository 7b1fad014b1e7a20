"""Rollback: a plan like any other, whose new server is the one that an earlier deploy replaced."""

from __future__ import annotations

from dataclasses import replace

from specops.connect.base import Connector
from specops.engine import preflight
from specops.engine.place import Place
from specops.engine.plan import FileDiff, Plan, new_id
from specops.engine.planner import foresee_outage
from specops.errors import Refused
from specops.facts.host import HostFacts, read_host_facts
from specops.facts.state import Current
from specops.steps.files import FileChange, back_up, check_files, swap
from specops.steps.server import OLD_SERVER, Clocks, await_ready, capture, launch_captured, prove_free, stop
from specops.steps.step import Step


def make_rollback(
    place: Place, connector: Connector, *, to: str | None, clocks: Clocks, drain_s: float, term_s: float
) -> Plan:
    """Undo the deploy in force: its files back to their bytes before, the server before it started again.

    `to` names the deploy that should be in force afterwards; only the one right below can be reached in one
    step, so that every step is proven. Raises Refused where there is nothing to take back.
    """
    facts = read_host_facts(connector, place.question())
    preflight.require_free(facts, place.host)
    current = facts.state.current
    if current is None:
        raise Refused(
            f"{place.host}: no deploy of specops is in force on port {place.port}: nothing to take back",
            host_state="nothing was changed",
            next_command=f"specops history --host {place.host}",
        )
    below = facts.state.stack[1] if len(facts.state.stack) > 1 else None
    if to is not None and to != below:
        raise Refused(
            f"{place.host}: a rollback of {current.id} leads to {below or 'what was there before specops'}, "
            f"not to {to}",
            host_state="nothing was changed",
            next_command=f"specops rollback --host {place.host}, once for each deploy to take back",
        )
    preflight.require_server(facts, place.host)
    facts = _with_hashes(place, connector, current)
    return _plan(place, facts, current, below, clocks, drain_s, term_s)


def _with_hashes(place: Place, connector: Connector, current: Current) -> HostFacts:
    """The same facts, with the hashes of the files that the deploy in force changed."""
    paths = tuple(file.path for file in current.files)
    return read_host_facts(connector, place.question(paths=paths))


def _plan(
    place: Place,
    facts: HostFacts,
    current: Current,
    below: str | None,
    clocks: Clocks,
    drain_s: float,
    term_s: float,
) -> Plan:
    for file in current.files:
        found = facts.paths.get(file.path)
        if found not in (file.after, file.before):
            raise Refused(
                f"{place.host}: {file.path} was changed after deploy {current.id}; "
                "a rollback would lose that change",
                host_state="nothing was changed",
                next_command=f"save or undo that change, then: specops rollback --host {place.host}",
            )
    files = tuple(
        FileChange(path=f.path, before=f.after, after=f.before, content=None)
        for f in current.files
        if facts.paths.get(f.path) == f.after
    )
    name = new_id()
    root = facts.install.root if facts.install else None
    return Plan(
        id=name,
        kind="rollback",
        host=place.host,
        instance={**place.reference(), "root": root},
        facts_digest=facts.digest,
        summary={
            "reverts": current.id,
            "restores": below,
            "release": current.summary.get("release"),
        },
        steps=_steps(place, facts, current, files, name, clocks, drain_s, term_s),
        outage=replace(foresee_outage(facts, ()), load_s=current.old_load_s),
        diffs=tuple(
            FileDiff(path=f.path, diff=f"back to the bytes before deploy {current.id}") for f in files
        ),
        restores=(f"what deploy {current.id} left: its files and its server",),
        notes=(f"takes back deploy {current.id}; then in force: {below or 'nothing of specops'}",),
    )


def _steps(
    place: Place,
    facts: HostFacts,
    current: Current,
    files: tuple[FileChange, ...],
    name: str,
    clocks: Clocks,
    drain_s: float,
    term_s: float,
) -> tuple[Step, ...]:
    server, port = facts.server, place.port
    pid, ticks = (server.pid, server.start_ticks) if server else (None, None)
    again = (
        (
            launch_captured(f"{current.id}/{OLD_SERVER}", port, name),
            await_ready(port, name, clocks, {}, "none"),
        )
        if current.has_old_server
        else (prove_free(port),)
    )
    return (
        *([check_files(files), back_up(files)] if files else []),
        capture(pid, ticks, port),
        stop(pid, ticks, port, drain_s=drain_s, term_s=term_s, clocks=clocks),
        *([swap(files)] if files else []),
        *again,
    )
