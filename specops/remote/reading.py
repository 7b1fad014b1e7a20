"""The verbs that only read, except for the facts: history, status, logs, files, and following."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

from . import follow, history, lock, redact, state, store
from .context import OpFailed
from .request import Request
from .state import Instance

Json = Any
LARGEST_FILE = 4 << 20
LARGEST_TAIL = 1 << 20
LOGS = {"server": "server.log", "old-server": "old-server.log", "agent": "agent.stderr"}


def follow_deploy(request: Request) -> Json:
    """params: an instance reference, deploy (default: the latest), from_seq (events after it)."""
    instance = state.open_instance(request.params)
    deploys = history.read_deploys(instance)
    wanted = request.params.get("deploy")
    past = next((p for p in reversed(deploys) if wanted in (None, p.id)), None)
    if past is None:
        what = f"deploy {wanted}" if wanted else "deploy"
        raise OpFailed("no_deploy", f"there is no {what} on this instance", next_command="specops history")
    from_seq = int(request.params.get("from_seq") or 0)
    return follow.follow(instance, past.id, request.answers, from_seq=from_seq)


def list_history(request: Request) -> Json:
    return history.list_history(request.params)


def show_lock(request: Request) -> Json:
    return {"lock": lock.read_owner(state.open_instance(request.params))}


def read_evidence(request: Request) -> Json:
    from . import evidence

    return evidence.bundle(request.params, request.answers.emit)


def read_status(request: Request) -> Json:
    """{"state": …, "latest": {id, kind, how, phase, …, "progress": last progress event or null} or null}."""
    instance = state.open_instance(request.params)
    deploys = history.list_history({**request.params, "limit": 1})["deploys"]
    latest = deploys[0] if deploys else None
    if latest is not None:
        events = list(follow.Events(instance.deploy(latest["id"]) / "events.jsonl").read())
        latest["progress"] = next((e for e in reversed(events) if e.get("event") == "progress"), None)
        latest["last_seq"] = events[-1].get("seq") if events else 0
    return {"state": history.state_facts(request.params), "latest": latest}


def read_logs(request: Request) -> Json:
    """params: deploy (default: the latest), which (server, old-server, agent), lines, offset.

    -> {deploy, which, path, offset, next_offset, text}. With `offset` the text starts there (to follow a
    growing log), else it is the last `lines`. Secrets are scrubbed.
    """
    instance = state.open_instance(request.params)
    which = str(request.params.get("which") or "server")
    if which not in LOGS:
        raise OpFailed("usage", f"no log {which!r}: {', '.join(LOGS)}")
    deploy_id = str(request.params.get("deploy") or _latest_with(instance, LOGS[which]))
    path = instance.deploy(deploy_id) / LOGS[which]
    try:
        size = path.stat().st_size
        asked = request.params.get("offset")
        start = max(0, size - LARGEST_TAIL) if asked is None else int(asked)
        if start > size:
            start = 0  # it was capped meanwhile (keeper.py), or it is another server's
        with open(path, "rb") as file:
            file.seek(start)
            data = file.read(LARGEST_TAIL)
    except FileNotFoundError:
        raise OpFailed(
            "no_log", f"deploy {deploy_id} has no {which} log", next_command="specops history"
        ) from None
    end = start + len(data)
    if asked is None:
        data = b"".join(data.splitlines(keepends=True)[-int(request.params.get("lines") or 200) :])
    scrub = redact.VaultScrub(path.parent / "vault.json")
    return {
        "deploy": deploy_id,
        "which": which,
        "path": str(path),
        "offset": end - len(data),
        "next_offset": end,
        "text": scrub(data.decode(errors="replace")),
    }


def _latest_with(instance: Instance, name: str) -> str:
    for past in reversed(history.read_deploys(instance)):
        if (past.dir / name).exists():
            return past.id
    raise OpFailed("no_log", f"no deploy on this instance has a {name}", next_command="specops history")


def read_file(request: Request) -> Json:
    """params: an instance reference, `files` (below the install's root) and `stored` (sha256 in the store).

    -> {"files": {path: {path, sha256, size, base64}}, "stored": {sha256: the same}}; null where there is no
    such file. Raises `not_readable` outside of the root and of the store, and above 4 MiB.
    """
    instance = state.open_instance(request.params)
    files = [str(path) for path in request.params.get("files") or ()]
    stored = [os.path.basename(str(digest)) for digest in request.params.get("stored") or ()]
    return {
        "files": {path: _read_one(instance.root / path, instance.root) for path in files},
        "stored": {digest: _read_one(instance.store / digest, instance.store) for digest in stored},
    }


def _read_one(path: Path, inside: Path) -> dict[str, Json] | None:
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(os.path.realpath(inside)):
        raise OpFailed("not_readable", f"{path} is not under {inside}")
    if not real.is_file():
        return None
    if real.stat().st_size > LARGEST_FILE:
        raise OpFailed("not_readable", f"{path} is larger than {LARGEST_FILE} bytes")
    with state.naming_io_errors(f"read {real}"):
        data = real.read_bytes()
    return {
        "path": str(real),
        "sha256": store.sha256(data),
        "size": len(data),
        "base64": base64.b64encode(data).decode(),
    }
