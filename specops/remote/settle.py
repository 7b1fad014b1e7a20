"""Settling: end a deploy by what its journal says. Needs nothing but the journal and the store.

The rule: every step done (or an irreversible last one started) and none taken back -> it is deployed;
otherwise every step that was started is undone, last first.
"""

from __future__ import annotations

import time
from typing import Any

from . import journal, notice, ops, procs
from .context import Context, OpFailed
from .deploy import Deploy
from .journal import Replay

Json = Any
RETRY_PAUSE_S = 1.0
NEEDS_ALL_BEFORE = frozenset({"server.restore"})
"""Undos that start something: never on files, or beside a server, that could not be taken back."""

KEEPS_STRANGERS = frozenset({"files.restore"})
"""Undos that stop at what somebody else changed, unless they are forced."""


def settle(deploy: Deploy, cause: dict[str, Json] | None, *, force: bool = False) -> None:
    """Finish the deploy, forward or back. Safe to run again after any death, on any boot.

    `force`: also over files that somebody else changed meanwhile.
    """
    now = journal.replay_deploy(deploy.dir)
    if now.ended:
        notice.drop(deploy.instance, deploy.id)
        return
    if now.committed:
        _close_forward(deploy, now, cause)
        return
    cause = now.cause or cause or {"id": "unfinished", "message": "the deploy never ended"}
    if now.touched:
        # What the failed operation said of the host is no longer so once the others are undone.
        cause = {name: value for name, value in cause.items() if name != "host_state"}
    if now.verdict and "verdict" not in cause:
        cause = {**cause, "verdict": now.verdict}
    try_record(deploy, {"entry": "settling", "cause": cause})
    failures = _undo_all(deploy, now, force)
    after = journal.replay_deploy(deploy.dir)
    if failures:
        how, serving = journal.FAILED_ROLLBACK, _serving(after.undone)
    elif now.touched:
        how, serving = "rolled back", _serving(after.undone) or {"line": "as before the deploy"}
    else:
        how, serving = "refused", {"line": _untouched(cause)}
    deploy.drop_transients(vault=not failures)
    _close(deploy, {"how": how, "cause": cause, "serving": serving, "failures": failures})


def _untouched(cause: dict[str, Json]) -> str:
    if cause.get("id") == "rebooted":
        return "nothing of before the reboot, unless it starts by itself: the deploy had changed nothing"
    return "as before: nothing was changed"


def _close_forward(deploy: Deploy, now: Replay, cause: dict[str, Json] | None) -> None:
    open_checks = [str(check.get("id")) for check in now.checks if check.get("verdict") == "inconclusive"]
    inconclusive = any(facts.get("verdict") == "inconclusive" for facts in now.done.values())
    failures = [cause] if cause and now.failed else []
    deploy.drop_transients(vault=False)
    entry: dict[str, Json] = {
        "how": "inconclusive" if inconclusive else "deployed",
        "cause": None,
        "serving": _serving(now.done),
        "failures": failures,
    }
    if inconclusive:
        entry["checks"] = open_checks
    _close(deploy, entry)


def _close(deploy: Deploy, fields: dict[str, Json]) -> None:
    final = fields["how"] in journal.FINAL
    if final:
        # First: after a death in between, one that is missing is a warning less until `recover`, and one that
        # is left would warn others of a deploy that has ended.
        notice.drop(deploy.instance, deploy.id)
    if not try_record(deploy, {"entry": "closed", **fields}):
        if final:
            notice.put(deploy.instance, deploy.id)
        deploy.emit(
            {"event": "note", "message": "the journal cannot be written: specops recover will close it"}
        )


def _undo_all(deploy: Deploy, now: Replay, force: bool) -> list[dict[str, Json]]:
    """Every owed undo, last first; one that fails is tried once more, and hides no other failure."""
    ctx = deploy.context(lambda: "")
    failures: list[dict[str, Json]] = []
    for index in now.owed:
        step = now.started[index]
        try_record(deploy, {"entry": "undoing", "index": index})
        try:
            if failures and step["undo"]["op"] in NEEDS_ALL_BEFORE:
                raise OpFailed(
                    "not_tried",
                    f"not tried, because {failures[0]['step']!r} could not be taken back",
                    next_command="specops recover",
                )
            facts = _undo(ctx, step["undo"], force)
        except OpFailed as error:
            failures.append({"index": index, "step": step.get("name"), **error.as_json()})
            try_record(deploy, {"entry": "undo_failed", "index": index, "error": error.as_json()})
        else:
            try_record(deploy, {"entry": "undone", "index": index, "facts": facts})
    return failures


def _undo(ctx: Context, undo: dict[str, Json], force: bool) -> dict[str, Json]:
    op, args = str(undo["op"]), dict(undo.get("args") or {})
    if force and op in KEEPS_STRANGERS:
        args["force"] = True
    try:
        return ops.call(ctx, op, args)
    except OpFailed as first:
        ctx.emit({"event": "note", "message": f"{op} failed and is tried once more: {first.message}"})
    time.sleep(RETRY_PAUSE_S)
    return ops.call(ctx, op, args)


def try_record(deploy: Deploy, entry: dict[str, Json]) -> bool:
    """False where the disk does not take it. What is owed is on disk already, and undoing it twice does
    no harm: a full disk must not stop the way back."""
    try:
        deploy.record(entry)
    except OSError:
        return False
    return True


def _serving(facts_by_index: dict[int, dict[str, Json]]) -> Json:
    """The last word that a step said on what serves, in the order of the journal."""
    said = [facts["serving"] for facts in facts_by_index.values() if facts.get("serving")]
    return _still(said[-1]) if said else None


def _still(serving: Json) -> Json:
    """The same, or that it has ended since: a reboot or somebody else may have come in between."""
    pid, ticks = (
        (serving.get("pid"), serving.get("start_ticks")) if isinstance(serving, dict) else (None, None)
    )
    if not pid or not ticks or procs.lives(int(pid), int(ticks)):
        return serving
    return {"line": f"nothing any more: {serving.get('line') or 'the server'} has ended since"}
