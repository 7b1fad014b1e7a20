"""Rollback: a plan like any other, whose new server is the one that an earlier deploy replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from specops.engine import preflight
from specops.engine.changes import Reader
from specops.engine.plan import FileDiff, Plan, new_id
from specops.engine.planner import foresee_outage
from specops.engine.room import check_others
from specops.errors import Refused
from specops.facts.host import HostFacts, read_host_facts
from specops.facts.state import Current, DeployedFile
from specops.steps.diff import DiffError, make_diff
from specops.steps.files import FileChange, back_up, check_files, swap
from specops.steps.server import OLD_SERVER, Clocks, await_ready, capture, launch_captured, prove_free, stop

if TYPE_CHECKING:
    from specops.connect.base import Connector
    from specops.engine.place import Place
    from specops.steps.step import Step


def make_rollback(
    place: Place,
    connector: Connector,
    *,
    to: str | None,
    force: bool = False,
    clocks: Clocks,
    drain_s: float,
    term_s: float,
) -> Plan:
    """Undo the deploy in force: its files back to their bytes before, the server before it started again.

    `to` names the deploy that should be in force afterwards; every one above it is taken back in one plan.
    `force` also replaces files that somebody changed since; the bytes found there are kept in the host's
    store. Raises Refused where there is nothing to take back, and for such files without `force`.
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
    stack = facts.state.stack
    above = _above(place, stack, to)
    below = stack[len(above)] if len(stack) > len(above) else None
    preflight.require_server(facts, place.host)
    if len(above) > 1:
        current = _together(place, connector, current, above)
    facts = _with_hashes(place, connector, current)
    drifted = [f for f in current.files if facts.paths.get(f.path) not in (f.after, f.before)]
    if drifted and not force:
        raise _drifted(place, facts, connector, current, drifted)
    return _plan(place, facts, current, above, below, clocks, drain_s, term_s)


def _above(place: Place, stack: Sequence[str], to: str | None) -> Sequence[str]:
    """Ids of the deploys to take back, newest first."""
    if to is None:
        return stack[:1]
    if to not in stack[1:]:
        known = ", ".join(stack[1:]) or "none: a rollback leads to what was there before specops"
        raise Refused(
            f"{place.host}: no deploy {to} is in force below {stack[0]} (to go back to: {known})",
            host_state="nothing was changed",
            next_command=f"specops history --host {place.host}",
        )
    return stack[: stack.index(to)]


def _together(place: Place, connector: Connector, current: Current, above: Sequence[str]) -> Current:
    """Several deploys as one: what the newest left, what was there before the oldest, its old server."""
    answer = connector.call("history", {"instance": place.reference()})
    if not isinstance(answer, dict):
        raise TypeError(f"history: not an object: {answer!r}")
    known = {deploy["id"]: deploy for deploy in answer["deploys"]}
    files: dict[str, DeployedFile] = {}
    for name in above:
        for file in known[name]["files"]:
            path, before = str(file["path"]), file["before"]
            after = files[path].after if path in files else file["after"]
            files[path] = DeployedFile(path=path, before=before, after=after)
    oldest = known[above[-1]]
    return replace(
        current,
        id=str(oldest["id"]),
        files=tuple(files.values()),
        summary=oldest.get("summary") or {},
        has_old_server=bool(oldest.get("has_old_server")),
        old_load_s=None,
    )


def _with_hashes(place: Place, connector: Connector, current: Current) -> HostFacts:
    """The same facts, with the hashes of the files that the deploy in force changed."""
    paths = tuple(file.path for file in current.files)
    return read_host_facts(connector, place.question(paths=paths))


def _drifted(
    place: Place, facts: HostFacts, connector: Connector, current: Current, drifted: Sequence[DeployedFile]
) -> Refused:
    root = f"{facts.install.root}/" if facts.install else "/"
    inside = {f.path: f.path.removeprefix(root) for f in drifted if f.path.startswith(root)}
    found = [inside[f.path] for f in drifted if f.path in inside and facts.paths.get(f.path)]
    left = [f.after for f in drifted if f.after]
    texts = Reader(connector=connector, place=place).contents(found, left)
    diffs = [
        _difference(texts.get(f.after or ""), texts.get(inside.get(f.path, "")), f.path) for f in drifted
    ]
    names = ", ".join(f.path for f in drifted)
    error = Refused(
        f"{place.host}: changed after deploy {current.id}, so a rollback would lose it: {names}",
        host_state="nothing was changed",
        next_command=f"save or undo that change; or, to keep the bytes found there in the host's store and "
        f"go on: specops rollback --force --host {place.host}",
    )
    error.detail = {"diff": "".join(diffs), "files": [f.path for f in drifted]}
    return error


def _difference(left: bytes | None, found: bytes | None, path: str) -> str:
    try:
        return make_diff(left, found, path.lstrip("/"))
    except DiffError:
        return f"{path}: is not text\n"


def _plan(
    place: Place,
    facts: HostFacts,
    current: Current,
    above: Sequence[str],
    below: str | None,
    clocks: Clocks,
    drain_s: float,
    term_s: float,
) -> Plan:
    files = tuple(
        FileChange(path=f.path, before=found, after=f.before, content=None)
        for f in current.files
        if (found := facts.paths.get(f.path)) != f.before
    )
    left = {f.path: f.after for f in current.files}
    kept = tuple(
        f"{change.path} was changed since: the bytes found there stay in the host's store as {change.before}"
        for change in files
        if change.before not in (None, left[change.path])
    )
    name = new_id()
    root = facts.install.root if facts.install else None
    what = f"deploy {above[0]}" if len(above) == 1 else f"deploys {', '.join(above)}"
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
        checks=check_others(facts),
        restores=(f"what {what} left: files and server",),
        notes=(f"takes back {what}; then in force: {below or 'nothing of specops'}", *kept),
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
        stop(pid, ticks, port, drain_s=drain_s, term_s=term_s, clocks=clocks, holders=facts.holders),
        *([swap(files)] if files else []),
        *again,
    )
