"""The smoke test as an operation: its load in a child, the server under watch, the first death ends it."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import measured, procs, state
from .activity import Activity
from .context import Context, Op, OpFailed
from .load_child import Child
from .watch import ServerWatch, Verdict

Json = Any
Emit = Callable[[dict[str, Json]], None]
POLL_S = 0.1
DEATH_S = 2.5
"""How long a failed check waits for the server's own last words, which name the cause better."""
LAST_WORDS_S = 3.0
"""How long a load may take, after a death, to end with its timeline."""
HANGS = "the server hangs"
"""In the words of a load that waits for a token."""
PASSED_ON = ("python", "cookie", "on_inconclusive")
"""Arguments of the operation that are no part of the specification."""


def run_step(ctx: Context, args: dict[str, Json]) -> dict[str, Json]:
    """Facts {verdict, summary, checks}; raises OpFailed (`smoke-failed`) for a fail, a death, an error."""
    spec = _spec(args, deploy_dir=ctx.deploy_dir, machine=ctx.deploy_dir.parents[3])
    watch = find_server(ctx.deploy_dir, args.get("cookie"), spec)
    spec["simulated"] = spec.get("simulated") or (watch is not None and simulates(watch.pid))
    key_env = str(spec.get("api_key_env") or "")
    secrets = {key_env: ctx.secrets[key_env]} if key_env in ctx.secrets else {}
    child = Child("child-smoke", _python(args), ctx.agent_zip, spec, secrets, ctx.deploy_dir / "smoke.stderr")
    try:
        result = _follow(ctx, child, watch)
    finally:
        child.end()
    _keep(ctx, result)
    return _settle(result)


def _keep(ctx: Context, result: dict[str, Json]) -> None:
    """On the host, and told to whoever follows: the proof and its timeline."""
    state.write_private(ctx.deploy_dir / "smoke.json", json.dumps(result).encode())
    checks = [_brief(check) for check in result.get("checks") or ()]
    told = {key: result.get(key) for key in ("verdict", "timeline", "cause") if key in result}
    ctx.emit({"event": "smoke", "deploy": ctx.deploy_id, "smoke": {**told, "checks": checks}})


OPS: dict[str, Op] = {"smoke": run_step}


def run_standalone(
    params: dict[str, Json], emit: Emit, gone: Callable[[], bool] = lambda: False
) -> dict[str, Json]:
    """`specops smoke` on a host, no deploy: the result as the child gives it. `gone`: nobody listens any
    more; raises OpFailed `aborted` then.

    `params`: instance reference, `smoke` (the spec), `agent_zip` (path), and perhaps `python`, `secrets`.
    """
    instance = state.open_instance(params)
    args = dict(params.get("smoke") or {})
    agent_zip = Path(params["agent_zip"])
    spec = _spec(args, deploy_dir=instance.deploys, machine=instance.machine)
    python = str(params.get("python") or (params.get("instance") or params).get("python") or "")
    secrets = {str(k): str(v) for k, v in (params.get("secrets") or {}).items()}
    started = time.time()
    child = Child("child-smoke", _python({"python": python}), agent_zip, spec, secrets, None)
    try:
        result = _listen(child, emit, gone)
    finally:
        child.end()
    kept = {key: spec.get(key) for key in ("threshold", "gate", "release")}
    kept |= {"verdict": result.get("verdict"), "checks": [_brief(c) for c in result.get("checks") or ()]}
    with contextlib.suppress(OSError):
        measured.keep(measured.path_of(instance.smokes, started), started, kept)
    return result


def _listen(child: Child, emit: Emit, gone: Callable[[], bool]) -> dict[str, Json]:
    while True:
        if gone():
            raise OpFailed("aborted", "nobody listens to this smoke test any more")
        event = child.next(POLL_S)
        if event is None:
            child.require_life()
        elif event.get("event") == "result":
            return dict(event["value"])
        else:
            emit(event)


def _spec(args: dict[str, Json], *, deploy_dir: Path, machine: Path) -> dict[str, Json]:
    spec = {key: value for key, value in args.items() if key not in PASSED_ON}
    if spec.get("log"):
        spec["log"] = state.expand(str(spec["log"]), deploy_dir=deploy_dir, machine=machine)
    return spec


def _python(args: dict[str, Json]) -> str:
    if not args.get("python"):
        raise OpFailed("usage", "the smoke test has no `python` to run its load with")
    return os.path.expanduser(str(args["python"]))


def find_server(deploy_dir: Path, cookie: str | None, spec: dict[str, Json]) -> ServerWatch | None:
    """The launched server by its record, else by its cookie, else the one whose pid was named (somebody else
    started it); None where none leads to a living one."""
    log = Path(spec["log"]) if spec.get("log") else None
    gated = spec.get("gate") == "native"
    record = state.read_json(deploy_dir / "server.json") or {}
    pid, ticks = record.get("pid"), record.get("start_ticks")
    if not (isinstance(pid, int) and isinstance(ticks, int)):
        found = procs.scan_processes()
        carriers = procs.carriers(found, cookie) if cookie else set()
        roots = sorted(pid for pid in carriers if found[pid].ppid not in carriers)
        pid = roots[0] if roots else spec.get("pid")
        if pid not in found:
            return None
        ticks = found[pid].start_ticks
    return ServerWatch(log, pid, ticks, cookie, from_end=True, gate_expected=gated)


def simulates(pid: int) -> bool:
    """SGLANG_SIMULATE_ACC_LEN sets the acceptance: no reading of it says anything then."""
    value = (procs.read_environ(pid) or {}).get("SGLANG_SIMULATE_ACC_LEN", "")
    return value not in ("", "-1", "-1.0", "0")


def _follow(ctx: Context, child: Child, watch: ServerWatch | None) -> dict[str, Json]:
    running: dict[str, Json] = {}
    checks: list[dict[str, Json]] = []
    why = ""
    while True:
        reason = ctx.aborted()
        if reason:
            raise OpFailed("aborted", f"aborted: {reason}")
        verdict = watch.poll() if watch else None
        if verdict is not None:
            _die(ctx, child, verdict, running, checks)
        event = child.next(POLL_S)
        if event is None:
            child.require_life()
            continue
        kind = event.get("event")
        if kind == "result":
            value = dict(event["value"])
            return {**value, "checks": [_with_reason(check, why) for check in value.get("checks") or ()]}
        if kind == "check":
            if event.get("verdict") == "fail" and watch:
                dead = _await_death(watch)
                if dead is not None:
                    _die(ctx, child, dead, event, checks)
                if HANGS in str(event.get("summary")):
                    why = Activity().explain(lambda: {watch.pid} | procs.children_of(watch.pid))
                    event = _with_reason(event, why)
            _record(ctx, event)
            checks.append(_brief(event))
            running = {}
        elif kind == "check_started":
            running = event
            ctx.emit(event)
        else:
            ctx.emit(event)


def _with_reason(found: dict[str, Json], why: str) -> dict[str, Json]:
    """The check, with what the server did while nothing came from it."""
    if not why or HANGS not in str(found.get("summary")):
        return found
    return {**found, "summary": f"{found['summary']} ({why})"}


def _await_death(watch: ServerWatch) -> Verdict | None:
    until = time.monotonic() + DEATH_S
    while time.monotonic() < until:
        verdict = watch.poll()
        if verdict is not None:
            return verdict
        time.sleep(POLL_S)
    return None


def _die(
    ctx: Context, child: Child, verdict: Verdict, running: dict[str, Json], checks: list[dict[str, Json]]
) -> None:
    """The journal has the verdict first: how soon it is there is measured."""
    ctx.record({"entry": "verdict", "cause": verdict.as_cause()})
    summary = f"the server died: {verdict.message}"
    if running.get("id"):
        failed = {**running, "event": "check", "verdict": "fail", "summary": summary}
        failed.setdefault("seconds", None)
        failed.setdefault("evidence", verdict.as_detail())
        _record(ctx, failed)
        checks.append(_brief(failed))
        summary = f"{running['id']} ({running.get('title')}): {summary}"
    timeline = _last_timeline(child)
    _keep(ctx, {"verdict": "fail", "checks": checks, "cause": verdict.as_detail(), "timeline": timeline})
    detail = {"cause": verdict.as_detail(), "checks": checks}
    raise OpFailed("smoke-failed", summary, detail=detail, next_command=verdict.action)


def _last_timeline(child: Child) -> Json:
    """What a load saw that notices a death by its broken requests; one that hangs is not waited for."""
    until = time.monotonic() + LAST_WORDS_S
    while time.monotonic() < until:
        event = child.next(POLL_S)
        if event is not None and event.get("event") == "result":
            return event["value"].get("timeline") or {}
        if event is None and not child.alive:
            break
    return {}


def _record(ctx: Context, check: dict[str, Json]) -> None:
    entry = {"entry": "check", "id": check["id"], "verdict": check["verdict"], "summary": check["summary"]}
    ctx.record(entry)
    ctx.emit({**check, "event": "check"})


def _brief(check: dict[str, Json]) -> dict[str, Json]:
    return {key: check.get(key) for key in ("id", "title", "verdict", "summary", "seconds")}


def _settle(result: dict[str, Json]) -> dict[str, Json]:
    """What is open is left to the executor, which knows the playbook's word on it."""
    checks = [_brief(check) for check in result.get("checks") or ()]
    verdict = str(result.get("verdict") or "error")
    named = [check for check in checks if check["verdict"] == verdict]
    words = "; ".join(f"{c['id']} ({c['title']}): {c['summary']}" for c in named)
    summary = words or str(result.get("summary") or verdict)
    facts = {"verdict": verdict, "summary": summary, "checks": checks}
    if verdict in ("fail", "error"):
        raise OpFailed("smoke-failed", summary, detail=facts)
    return facts
