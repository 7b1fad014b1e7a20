"""Runs a plan's steps on the host, each written down before it acts; what fails is settled here too."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from . import ops, settle
from .context import Context, OpFailed
from .deploy import Deploy

Json = Any
EVIDENCE_S = 15.0
BOUNDARY = frozenset({"S1", "S2", "S3"})
"""The checks without which nothing is known of the gate."""
ROLL_BACK = "roll_back"


def execute(deploy: Deploy, aborted: Callable[[], str]) -> None:
    """Ends with a `closed` entry, unless the disk takes none; then the deploy stays unfinished."""
    ctx = deploy.context(aborted)
    steps = deploy.plan()["steps"]
    for index, step in enumerate(steps):
        try:
            _run_step(ctx, index, step)
        except OpFailed as error:
            cause = describe_cause(error, index, step)
            settle.try_record(deploy, {"entry": "failed", "index": index, "error": error.as_json()})
            collect_evidence(deploy, {**cause, "detail": error.detail})
            settle.settle(deploy, cause)
            return
    settle.settle(deploy, None)


def _run_step(ctx: Context, index: int, step: dict[str, Json]) -> None:
    reason = ctx.aborted()
    if reason:
        raise OpFailed("aborted", f"aborted: {reason}")
    name, do = step["name"], step["do"]
    try:
        ctx.record(
            {"entry": "starting", "index": index, "name": name, "phase": step["phase"], "undo": step["undo"]}
        )
    except OSError as error:
        raise OpFailed(
            "no_journal", f"the journal cannot be written: {error}, so {name!r} was not started"
        ) from error
    facts = ops.call(ctx, do["op"], do.get("args") or {})
    _judge(facts, do.get("args") or {})
    try:
        ctx.record({"entry": "done", "index": index, "facts": facts})
    except OSError as error:
        raise OpFailed("no_journal", f"the journal cannot be written: {error}") from error


def _judge(facts: dict[str, Json], args: dict[str, Json]) -> None:
    """A step whose facts hold a verdict passes with `pass`, and with `inconclusive` where that is kept."""
    verdict = facts.get("verdict")
    if verdict in ("fail", "error"):
        raise OpFailed("check_failed", str(facts.get("summary") or "a check failed"), detail=facts)
    if verdict == "inconclusive" and _rolls_back(facts, args.get("on_inconclusive") or "keep"):
        raise OpFailed(
            "inconclusive", str(facts.get("summary") or "a check stayed without a verdict"), detail=facts
        )


def _rolls_back(facts: dict[str, Json], policy: Json) -> bool:
    """`policy` is `roll_back` or `keep`, or one of them for the boundary's checks and one for the others."""
    if not isinstance(policy, dict):
        return bool(policy == ROLL_BACK)
    checks = facts.get("checks") or []
    ids = {str(check.get("id")) for check in checks if check.get("verdict") == "inconclusive"}
    # Without a word on which check it was, it may have been one that matters.
    boundary = bool(ids & BOUNDARY) or not ids
    return (boundary and policy.get("boundary") == ROLL_BACK) or (
        bool(ids - BOUNDARY) and policy.get("others") == ROLL_BACK
    )


def describe_cause(error: OpFailed, index: int, step: dict[str, Json]) -> dict[str, Json]:
    return {
        "id": error.code,
        "message": error.message,
        "index": index,
        "step": step.get("name"),
        "phase": step.get("phase"),
        "host_state": error.host_state,
        "next_command": error.next_command,
    }


def collect_evidence(deploy: Deploy, cause: dict[str, Json]) -> None:
    """Best effort and bounded: evidence that hangs must not keep the old server down."""
    plan = deploy.plan()
    if not any(str(step["do"]["op"]).startswith(("server.", "smoke")) for step in plan.get("steps") or ()):
        return

    def collect() -> None:
        try:
            from . import evidence

            path = evidence.collect(deploy.context(lambda: ""), cause)
            settle.try_record(deploy, {"entry": "evidence", "path": str(path)})
        except Exception:
            traceback.print_exc(file=sys.stderr)

    collecting = threading.Thread(target=collect, name="evidence", daemon=True)
    collecting.start()
    collecting.join(EVIDENCE_S)
