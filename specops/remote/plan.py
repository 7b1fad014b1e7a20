"""A plan as it comes over the wire: checked before anything of it is written or done."""

from __future__ import annotations

from typing import Any

from . import ops, state
from .context import OpFailed
from .journal import FORMAT

Json = Any
PHASES = ("check", "backup", "stage", "rehearse", "stop", "swap", "launch", "ready", "smoke", "commit")


def check_plan(plan: Json) -> dict[str, Json]:
    """Raises `refused`; a step without its undo is no step."""
    if not isinstance(plan, dict):
        raise _refused("it is not an object")
    if plan.get("format") != FORMAT:
        raise _refused(f"this agent reads format {FORMAT}, not {plan.get('format')!r}")
    if not isinstance(plan.get("id"), str) or not state.DEPLOY_ID.fullmatch(plan["id"]):
        raise _refused(f"its id {plan.get('id')!r} is not an id")
    if plan.get("kind") not in ("deploy", "rollback"):
        raise _refused(f"its kind {plan.get('kind')!r} is neither deploy nor rollback")
    steps = plan.get("steps")
    if not isinstance(steps, list) or not steps:
        raise _refused("it has no steps")
    for index, step in enumerate(steps):
        _check_step(step, index, last=index == len(steps) - 1)
    return plan


def _check_step(step: Json, index: int, *, last: bool) -> None:
    where = f"step {index}"
    if not isinstance(step, dict) or not isinstance(step.get("name"), str):
        raise _refused(f"{where} has no name")
    where = f"step {index} ({step['name']})"
    if step.get("phase") not in PHASES:
        raise _refused(f"{where} has no known phase: {step.get('phase')!r}")
    _check_command(step.get("do"), f"{where}: do")
    undo = step.get("undo")
    if isinstance(undo, dict) and isinstance(undo.get("inert"), str):
        return
    if isinstance(undo, dict) and isinstance(undo.get("irreversible"), str):
        if not last:
            raise _refused(f"{where} is irreversible and not the last")
        return
    _check_command(undo, f"{where}: undo")


def _check_command(command: Json, where: str) -> None:
    if not isinstance(command, dict) or not isinstance(command.get("op"), str):
        raise _refused(f"{where} is missing")
    if not isinstance(command.get("args", {}), dict):
        raise _refused(f"{where} has arguments that are no object")
    try:
        ops.find(command["op"])
    except OpFailed as error:
        raise _refused(f"{where}: {error.message}") from error


def _refused(why: str) -> OpFailed:
    return OpFailed(
        "refused",
        f"the plan cannot be run: {why}",
        host_state="nothing was changed",
        next_command="use the same specops for plan and host",
    )
