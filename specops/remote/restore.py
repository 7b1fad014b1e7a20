"""The undo of a stop: the server of before is back, and as healthy as it was."""

from __future__ import annotations

from typing import Any

from . import keeper, members, procs, state, stop
from .api import api_of
from .capture import OLD_SERVER, read_vault
from .context import Context, OpFailed
from .launch import SERVER_FILE, read_note, resolve, start_server, start_supervised
from .ready import Wait

Json = Any
OLD_NOTE = f"old-{SERVER_FILE}"


def restore(ctx: Context, args: dict[str, Json]) -> dict[str, Json]:
    """Holds when the stop never began, when it was cut anywhere, and when it runs twice."""
    port = int(args["port"])
    kept = read_vault(ctx, OLD_SERVER)
    if kept is None:
        return {}
    if kept.get("nothing"):
        stop.require_free_port(port)
        return {"serving": {"line": f"nothing, as before: port {port} is free"}}
    if not (ctx.deploy_dir / stop.MARK).exists():
        # no signal was ever sent: whatever the server does now, it does by itself
        if procs.lives(int(kept["pid"]), int(kept["start_ticks"])):
            return _serving(kept["pid"], kept["start_ticks"], port, "the old server, which was never stopped")
        return {"serving": {"line": "the old server ended by itself before the deploy would have stopped it"}}
    if kept.get("no_restore"):
        _stop_rest(ctx, kept)
        stop.prove_port_free(port)
        return {"serving": {"line": f"nothing serves on port {port}, as was accepted: {kept['no_restore']}"}}
    note = _running(ctx) or _start(ctx, kept, port)
    return _prove(ctx, kept, note, port, args.get("ready") or {})


def _cookie(ctx: Context) -> str:
    return f"{ctx.deploy_id}-old"


def _running(ctx: Context) -> dict[str, Json]:
    """A restore that was cut may have started it already."""
    note = read_note(ctx, _cookie(ctx))
    return note if note and procs.lives(int(note["pid"]), int(note["start_ticks"])) else {}


def _start(ctx: Context, kept: dict[str, Json], port: int) -> dict[str, Json]:
    _stop_rest(ctx, kept)
    # what an earlier restore left without its launcher, or started without writing it down
    stop.kill(ctx, {"cookie": _cookie(ctx), "port": port})
    stop.prove_port_free(port)
    if stop.control_of(kept):
        return start_supervised(ctx, kept, _cookie(ctx), port, OLD_NOTE)
    spec = {
        "vault": OLD_SERVER,
        "port": port,
        "cookie": _cookie(ctx),
        "log": "{deploy_dir}/old-server.log",
    }
    keeper.start(ctx, start_server(resolve(ctx, spec), ctx.deploy_dir / OLD_NOTE))
    return read_note(ctx, _cookie(ctx))


def _stop_rest(ctx: Context, kept: dict[str, Json]) -> None:
    """A stop that was cut may have left some of it."""
    find = stop.finder_of_old(ctx, int(kept["pid"]), int(kept["start_ticks"]))
    stop.stop_processes(find, launcher=None, drain_s=0.0, term_s=stop.UNDO_TERM_S)


def _prove(
    ctx: Context, kept: dict[str, Json], note: dict[str, Json], port: int, clocks: dict[str, Json]
) -> dict[str, Json]:
    health = kept.get("health") or {}
    if not health.get("token"):
        # it did not answer before: that it runs again is all that a rollback owes
        return _serving(
            note["pid"], note["start_ticks"], port, "the old server, started again, unproven as before"
        )
    expect = {name: value for name, value in (health.get("reported") or {}).items() if name != "version"}
    try:
        Wait(ctx=ctx, note=note, port=port, clocks=clocks, expect=expect, phase="restore").run()
    except OpFailed as error:
        raise OpFailed(
            "old_server_not_back",
            f"the old server does not come back: {error.message}",
            detail=error.detail,
            host_state="its files are as before, but it does not serve",
            next_command="specops logs --which old; then: specops recover",
        ) from error
    return _serving(note["pid"], note["start_ticks"], port, "the old server, started again")


def _serving(pid: Json, ticks: Json, port: int, what: str) -> dict[str, Json]:
    argv = procs.read_argv(int(pid))
    model = members.find_option(argv, "--model-path", "--model") or "an SGLang server"
    healthy = api_of(port, argv).is_healthy(timeout_s=5.0)
    line = f"{what}: pid {pid} on port {port} ({model})"
    return {
        "serving": {"line": line, "pid": pid, "start_ticks": ticks, "healthy": healthy},
        "boot_id": state.boot_id(),
    }
