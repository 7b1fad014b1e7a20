"""Stopping exactly one server: drain, TERM, KILL, then prove that nothing of it is left."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from typing import Any

from . import gpus, holders, members, procs, shm, state, supervised
from .capture import OLD_SERVER, read_vault
from .context import Context, OpFailed
from .launch import read_note

Json = Any
POLL_S = 0.1
KILL_S = 15.0
"""A killed process goes late when its GPU context is torn down."""
PORT_S = 30.0
GPU_S = 60.0
UNDO_TERM_S = 4.0
MARK = "stopping.json"
"""In the deploy's folder from before the first signal: the old server may be dying though it still lives."""


def stop(ctx: Context, args: dict[str, Json]) -> dict[str, Json]:
    pid, port = args.get("pid"), int(args["port"])
    if pid is None:
        ranks = _stop_ranks(args)
        if ranks:
            prove_port_free(port)
        require_free_port(port)
        return {"stopped": ranks, "serving": {"line": f"nothing serves on port {port}"}}
    ticks = int(args["start_ticks"])
    shared: set[str] = set()
    find = shm.noting(finder_of_old(ctx, int(pid), ticks), shared)
    _refuse_stranger(port, find())
    held = holders.read_holding(procs.scan_processes(), int(pid), (key[0] for key in find()))
    _refuse_others(held, find(), args, host_state="the server that the plan names was not stopped")
    ranks = _stop_ranks(args)
    state.write_private(ctx.deploy_dir / MARK, b'{"signalled": true}')
    began = time.monotonic()
    before = find()
    starts = [procs.start_time(found) for pid, _ in before if (found := procs.read_process(pid))]
    control = control_of(read_vault(ctx, OLD_SERVER) or {})
    if control:
        supervised.stop(control, float(args["drain_s"]) + float(args["term_s"]))
    # what a supervisor leaves of it: workers that are in no group or cgroup of its
    gone = before | stop_processes(
        find, launcher=(int(pid), ticks), drain_s=args["drain_s"], term_s=args["term_s"]
    )
    prove_port_free(port)
    wait_for_gpus({key[0] for key in gone})
    _refuse_others(held, gone, args, host_state="the server is down", wait_s=GPU_S)
    return {
        "stopped": sorted({*ranks, *(key[0] for key in gone)}),
        "shared_memory": shm.remove_unused(shared | shm.orphans(), min(starts, default=time.time())),
        "seconds": round(time.monotonic() - began, 2),
    }


def _stop_ranks(args: dict[str, Json]) -> list[int]:
    """Pids of the ranks that a dead launcher left; all that they hold is free again."""
    known = {(int(pid), int(ticks)) for pid, ticks in args.get("ranks") or ()}
    if not known:
        return []

    def find() -> set[tuple[int, int]]:
        scan = procs.scan_processes()
        return {scan[pid].key for pid in members.find_members(scan, known=known)}

    shared: set[str] = set()
    started = min((procs.start_time(p) for pid, _ in find() if (p := procs.read_process(pid))), default=0.0)
    noted = shm.noting(find, shared)
    gone = {pid for pid, _ in stop_processes(noted, launcher=None, drain_s=0.0, term_s=float(args["term_s"]))}
    wait_for_gpus(gone)
    if gone:
        shm.remove_unused(shared, started)
    return sorted(gone)


def kill(ctx: Context, args: dict[str, Json]) -> dict[str, Json]:
    """Undo of a launch. Nothing to do where nothing was started, or all of it is gone."""
    cookie, port = str(args["cookie"]), int(args["port"])
    note = read_note(ctx, cookie)
    launcher = (int(note["pid"]), int(note["start_ticks"])) if note else None
    seen: set[tuple[int, int]] = set()

    def find() -> set[tuple[int, int]]:
        scan = procs.scan_processes()
        pid, ticks = launcher or (None, None)
        found = members.find_members(scan, pid=pid, start_ticks=ticks, cookie=cookie, known=seen)
        seen.update(scan[member].key for member in found)
        return {scan[member].key for member in found}

    shared = shm.kept(ctx.deploy_dir, cookie)
    noted = shm.noting(find, shared)
    if note.get("control") and launcher in noted():
        supervised.stop(note["control"], UNDO_TERM_S)
    gone = stop_processes(noted, launcher=launcher, drain_s=0.0, term_s=UNDO_TERM_S)
    if launcher:
        procs.exit_status(launcher[0])
    if gone:
        prove_port_free(port)
        wait_for_gpus({key[0] for key in gone})
    return {
        "stopped": sorted(key[0] for key in gone),
        "shared_memory": shm.remove_unused(shared | shm.orphans(), float(note.get("at") or time.time())),
        "serving": {"line": f"nothing serves on port {port}"},
    }


def control_of(kept: dict[str, Json]) -> dict[str, list[str]] | None:
    """How the supervisor of a captured server is told to stop and start it; None where it has none."""
    found = (kept.get("supervisor") or {}).get("control")
    return found if isinstance(found, dict) else None


def finder_of_old(ctx: Context, pid: int, ticks: int) -> Callable[[], set[tuple[int, int]]]:
    """Finds what lives of the old server, also what was seen as its member when it was captured."""
    kept = read_vault(ctx, OLD_SERVER) or {}
    seen = {(int(member), int(start)) for member, start in kept.get("members") or ()}
    cookie = (kept.get("env") or {}).get(procs.COOKIE)

    def find() -> set[tuple[int, int]]:
        scan = procs.scan_processes()
        found = members.find_members(scan, pid=pid, start_ticks=ticks, cookie=cookie, known=seen)
        seen.update(scan[member].key for member in found)
        return {scan[member].key for member in found}

    return find


def _refuse_stranger(port: int, ours: set[tuple[int, int]]) -> None:
    """The port must be held by what we are about to stop, or by nobody."""
    scan = procs.scan_processes()
    strangers = procs.port_holders(scan, port) - {key[0] for key in ours}
    if strangers:
        raise OpFailed(
            "port_taken",
            f"port {port} is held by another process: {members.describe_process(min(strangers))}",
            host_state="the server that the plan names was not stopped",
            next_command="plan again: specops plan",
        )


def _refuse_others(
    held: holders.Holding,
    ours: set[tuple[int, int]],
    args: dict[str, Json],
    *,
    host_state: str,
    wait_s: float = 0.0,
) -> None:
    """Nobody is on the server's GPUs but its own processes and those that the plan showed (`holders`)."""
    shown = {(int(pid), int(ticks)) for pid, ticks in args.get("holders") or ()}
    shown |= {(int(pid), int(ticks)) for pid, ticks in args.get("ranks") or ()}
    until = time.monotonic() + wait_s
    while True:
        found = holders.find_others(procs.scan_processes(), held, (key[0] for key in ours))
        found = [other for other in found if (other["pid"], other["start_ticks"]) not in shown]
        if not found or time.monotonic() >= until:
            break
        time.sleep(0.5)
    if found:
        raise OpFailed(
            "gpu_held",
            "the server's GPUs are also held by what nothing shows to be part of it: "
            + "; ".join(map(holders.describe, found[:4])),
            detail={"holders": found},
            host_state=f"{host_state}; none of these was signalled",
            next_command="end them if they are yours, or plan again: the plan names them",
        )


def stop_processes(
    find: Callable[[], set[tuple[int, int]]],
    *,
    launcher: tuple[int, int] | None,
    drain_s: float,
    term_s: float,
) -> set[tuple[int, int]]:
    """Everything that `find` names, until it names nothing. Returns what was there (pid, start ticks).

    A TERM to the launcher alone lets SGLang finish its requests; the rest gets its signals later.
    Raises `not_permitted`, or `still_alive` with what outlived a KILL.
    """
    before = find()
    everything = set(before)
    if not before:
        return everything
    if launcher in before and drain_s > 0:
        _signal({launcher}, signal.SIGTERM)
        everything |= _wait_gone(find, drain_s)
    for number, wait_s in ((signal.SIGTERM, term_s), (signal.SIGKILL, KILL_S)):
        left = find()
        everything |= left
        if not left:
            return everything
        _signal(left, number)
        everything |= _wait_gone(find, wait_s, again=number if number == signal.SIGKILL else None)
    left = find()
    if left:
        names = "; ".join(members.describe_process(pid) for pid, _ in sorted(left)[:3])
        raise OpFailed(
            "still_alive",
            f"{len(left)} processes outlived SIGKILL by {KILL_S:.0f} s: {names}",
            host_state="the server is down, but not all of it is gone",
            next_command="look for processes in state D (driver, disk), then: specops recover",
        )
    return everything


def _signal(keys: set[tuple[int, int]], number: signal.Signals) -> None:
    for pid, ticks in sorted(keys):
        process = procs.read_process(pid)
        if process is None or process.start_ticks != ticks:
            continue
        try:
            procs.send_signal(process, number)
        except PermissionError as error:
            raise OpFailed(
                "not_permitted",
                f"{members.describe_process(pid)} cannot be signalled by this user",
                host_state="the server goes on, or part of it",
                next_command="set `become` for this host in inventory.yaml",
            ) from error


def _wait_gone(
    find: Callable[[], set[tuple[int, int]]], wait_s: float, *, again: signal.Signals | None = None
) -> set[tuple[int, int]]:
    """Until `find` names nothing or the time is over; `again` also goes to whatever appears meanwhile."""
    everything: set[tuple[int, int]] = set()
    until = time.monotonic() + wait_s
    while time.monotonic() < until:
        left = find()
        if not left:
            break
        if again is not None and left - everything:
            _signal(left, again)
        everything |= left
        time.sleep(POLL_S)
    return everything


def require_free_port(port: int) -> None:
    if procs.port_is_free(port):
        return
    holder = members.describe_holder(procs.scan_processes(), port)
    raise OpFailed(
        "port_taken",
        f"port {port} should be free, but is held by {holder}",
        host_state="that process was left alone",
        next_command="stop it, or choose another port for this instance",
    )


def prove_port_free(port: int) -> None:
    until = time.monotonic() + PORT_S
    while time.monotonic() < until:
        if procs.port_is_free(port):
            return
        time.sleep(POLL_S)
    require_free_port(port)


def wait_for_gpus(pids: set[int]) -> None:
    """Until the driver has taken back the memory of these processes; at once without GPUs."""
    if not pids or gpus.find_smi() is None:
        return
    until = time.monotonic() + GPU_S
    while held := pids & set(gpus.read_users()):
        if time.monotonic() > until:
            raise OpFailed(
                "gpu_held",
                f"GPU memory is still held by stopped processes {sorted(held)} after {GPU_S:.0f} s",
                host_state="the server is down",
                next_command="nvidia-smi; then: specops recover",
            )
        with contextlib.suppress(InterruptedError):
            time.sleep(0.5)
