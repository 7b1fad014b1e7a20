"""What the journals of an instance say: its deploys, the unfinished one, the stack that is in force."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import journal, loads, lock, measured, notice, redact, state
from .context import OpFailed
from .journal import Replay
from .state import Instance

Json = Any


@dataclass(frozen=True)
class Past:
    """One deploy that was opened on this instance."""

    id: str
    dir: Path
    plan: dict[str, Json]
    now: Replay

    @property
    def opened_at(self) -> float:
        return float((self.now.opened or {}).get("at") or 0)

    @property
    def closed(self) -> dict[str, Json]:
        return self.now.closed or {}


def read_deploys(instance: Instance) -> list[Past]:
    """Oldest first. A folder without an `opened` entry never became a deploy. Raises `newer_state`."""
    found = []
    for folder in instance.deploys.iterdir() if instance.deploys.is_dir() else ():
        refuse_newer(folder)
        now = journal.replay_deploy(folder)
        if now.opened is not None:
            plan = state.read_json(folder / "plan.json")
            found.append(Past(folder.name, folder, plan if isinstance(plan, dict) else {}, now))
    return sorted(found, key=lambda past: (past.opened_at, past.id))


def refuse_newer(folder: Path) -> None:
    """What a newer specops left cannot be judged, so nothing is settled, started or removed beside it."""
    plan = state.read_json(folder / "plan.json")
    plan = plan if isinstance(plan, dict) else {}
    first = next(iter(journal.read(folder)), {})
    newest = max(_number(plan.get("format")), _number(first.get("format")))
    if newest > journal.FORMAT:
        version = (plan.get("by") or {}).get("version") or "unknown"
        raise OpFailed(
            "newer_state",
            f"deploy {folder.name} was written by a newer specops (version {version}, format {newest}); "
            f"this one knows up to format {journal.FORMAT} ({folder})",
            host_state="nothing was changed by this request; what runs there goes on",
            next_command="pip install --upgrade specops",
        )


def _number(value: Json) -> int:
    return value if isinstance(value, int) else 0


def drop_unopened(instance: Instance) -> None:
    """Remove folders of requests that died before they became a deploy. Only under the lock."""
    for folder in instance.deploys.iterdir() if instance.deploys.is_dir() else ():
        if not journal.read(folder):
            shutil.rmtree(folder, ignore_errors=True)


def unfinished(deploys: list[Past]) -> Past | None:
    """The newest that owes something; a failed rollback still does."""
    return next((past for past in reversed(deploys) if not past.now.ended), None)


def current_stack(deploys: list[Past]) -> list[Past]:
    """Deploys in force, oldest first: a closed rollback takes away the one it reverts and all above it."""
    stack: list[Past] = []
    for past in deploys:
        if past.closed.get("how") not in ("deployed", "inconclusive"):
            continue
        if past.plan.get("kind") != "rollback":
            stack.append(past)
            continue
        reverted = (past.plan.get("summary") or {}).get("reverts")
        at = next((i for i, other in enumerate(stack) if other.id == reverted), len(stack) - 1)
        del stack[max(at, 0) :]
    return stack


def state_facts(params: dict[str, Json]) -> dict[str, Json]:
    """The `state` of the facts (ARCHITECTURE, Facts); nothing is known where there is no install."""
    try:
        instance = state.open_instance(params)
    except OpFailed as error:
        if error.code != "no_install":
            raise
        return {
            "dir": "",
            "key": "",
            "lock": None,
            "unfinished": None,
            "others": [],
            "current": None,
            "stack": [],
            "loads": [],
        }
    deploys = read_deploys(instance)
    owed = unfinished(deploys)
    stack = current_stack(deploys)
    return {
        "dir": str(instance.machine),
        "key": instance.key,
        "lock": lock.read_owner(instance),
        "unfinished": {"id": owed.id, "phase": owed.now.phase} if owed else None,
        "others": notice.read_others(instance),
        "current": {
            **_describe_current(instance, stack[-1]),
            "installed": merge_changes([changed_files(instance, past) for past in stack]),
            "cookies": in_force(deploys),
        }
        if stack
        else None,
        "stack": [past.id for past in reversed(stack)],
        "loads": loads.list_newest(instance.deploys),
    }


def _describe_current(instance: Instance, past: Past) -> dict[str, Json]:
    vault = state.read_json(past.dir / "vault.json") or {}
    old = vault.get("old_server") or {}
    known = (
        loads.find_load(instance.deploys, **loads.describe_models(old["argv"])) if old.get("argv") else None
    )
    return {
        "id": past.id,
        "kind": past.plan.get("kind"),
        "summary": past.plan.get("summary") or {},
        "files": changed_files(instance, past),
        "closed": past.closed.get("at"),
        "how": past.closed.get("how"),
        "has_old_server": "argv" in old,
        "old_load_s": known.load_s if known else None,
    }


def changed_files(instance: Instance, past: Past) -> list[dict[str, Json]]:
    """Path (absolute), before and after of every file the deploy swapped; once where it did so twice."""
    swaps = []
    for step in past.plan.get("steps") or ():
        files = step["do"]["args"]["files"] if step["do"]["op"] == "files.swap" else ()
        swaps.append(
            [
                {
                    **file,
                    "path": state.expand(str(file["path"]), deploy_dir=past.dir, machine=instance.machine),
                }
                for file in files
            ]
        )
    return merge_changes(swaps)


def merge_changes(swaps: list[list[dict[str, Json]]]) -> list[dict[str, Json]]:
    """Oldest first -> once for each path: what it was before the first of them, and after the last."""
    changes: dict[str, dict[str, Json]] = {}
    for file in (file for files in swaps for file in files):
        first = changes.get(file["path"], file)
        changes[file["path"]] = {"path": file["path"], "before": first["before"], "after": file["after"]}
    return [file for file in changes.values() if file["before"] != file["after"]]


def in_force(deploys: list[Past]) -> list[str]:
    """Cookies that the server in force can carry: of the last plan that ended well, and of the old server
    that each later failed deploy has started again."""
    cookies: list[str] = []
    for past in deploys:
        how = past.closed.get("how")
        if how in ("deployed", "inconclusive"):
            cookies = [past.id]
        elif how == "rolled back":
            cookies.append(f"{past.id}-old")
    return cookies


def list_history(params: dict[str, Json]) -> dict[str, Json]:
    """{"deploys", "sweeps", "smokes": newest first, "stack": ids in force, newest first}."""
    instance = state.open_instance(params)
    deploys = read_deploys(instance)
    entries = [_describe(instance, past) for past in reversed(deploys)]
    limit = int(params["limit"]) if params.get("limit") else None
    return {
        "deploys": entries[:limit],
        "stack": [past.id for past in reversed(current_stack(deploys))],
        "sweeps": measured.list_sweeps(instance)[:limit],
        "smokes": measured.list_smokes(instance)[:limit],
    }


def _describe(instance: Instance, past: Past) -> dict[str, Json]:
    return {
        "id": past.id,
        "kind": past.plan.get("kind"),
        "how": past.closed.get("how"),
        "phase": past.now.phase,
        "cause": past.closed.get("cause") or past.now.cause,
        "failures": past.closed.get("failures") or [],
        "serving": past.closed.get("serving"),
        "by": past.plan.get("by"),
        "opened_at": past.opened_at or None,
        "closed_at": past.closed.get("at"),
        "summary": past.plan.get("summary") or {},
        "files": changed_files(instance, past),
        "checks": past.now.checks,
        "boot_id": (past.now.opened or {}).get("boot_id"),
        "argv": redact.redact_argv(_launched(past)),
        "has_old_server": "argv"
        in ((state.read_json(past.dir / "vault.json") or {}).get("old_server") or {}),
    }


def _launched(past: Past) -> list[str]:
    """The server's command line, where the plan itself has it; a rollback's is in the vault."""
    for step in past.plan.get("steps") or ():
        if step["do"]["op"] == "server.launch":
            return [str(word) for word in step["do"]["args"]["launch"].get("argv") or ()]
    return []
