"""The server of before: everything that is needed to start it again, kept in the deploy's vault."""

from __future__ import annotations

import os
import resource
import shutil
from typing import Any

from . import members, procs, redact, state, supervisor
from .api import api_of
from .context import Context, OpFailed

Json = Any
OLD_SERVER = "old_server"
UNCHANGED = "nothing was changed; the server goes on"
LIMITS = {
    "Max core file size": resource.RLIMIT_CORE,
    "Max open files": resource.RLIMIT_NOFILE,
    "Max locked memory": resource.RLIMIT_MEMLOCK,
    "Max stack size": resource.RLIMIT_STACK,
    "Max processes": resource.RLIMIT_NPROC,
    "Max address space": resource.RLIMIT_AS,
}
"""What a server's work depends on, by its name in /proc/<pid>/limits."""


def capture(ctx: Context, args: dict[str, Json]) -> dict[str, Json]:
    pid = args.get("pid")
    port = int(args.get("port") or ctx.instance.get("port") or 0)
    if pid is None:
        put_in_vault(ctx, OLD_SERVER, {"nothing": True, "port": port})
        return {"old_server": None, "healthy": False, "summary": "nothing was serving"}
    try:
        server = read_server(int(pid), int(args["start_ticks"]), port)
    except OpFailed as error:
        if error.code != "cannot_restore" or not args.get("accept_no_restore"):
            raise
        return _give_up(ctx, int(pid), int(args["start_ticks"]), error.message)
    put_in_vault(ctx, OLD_SERVER, server)
    return {
        "old_server": {"pid": pid, "start_ticks": args["start_ticks"], "members": server["members"]},
        "argv": redact.redact_argv(server["argv"]),
        "cwd": server["cwd"],
        "healthy": server["health"]["token"],
        "summary": f"pid {pid}, " + ("answers" if server["health"]["token"] else "does not answer"),
    }


def _give_up(ctx: Context, pid: int, start_ticks: int, why: str) -> dict[str, Json]:
    """Note what is needed to stop it, and why it will not be started again: that was accepted."""
    scan = procs.scan_processes()
    cookie = (procs.read_environ(pid) or {}).get(procs.COOKIE)
    found = members.find_members(scan, pid=pid, start_ticks=start_ticks, cookie=cookie)
    server = {
        "no_restore": why,
        **_identity(pid, scan[pid]),
        "pid": pid,
        "start_ticks": start_ticks,
        "members": [list(scan[member].key) for member in sorted(found)],
        "supervisor": supervisor.find_supervisor(scan, pid),
    }
    put_in_vault(ctx, OLD_SERVER, server)
    known = {"pid": pid, "start_ticks": start_ticks, "members": server["members"]}
    return {
        "old_server": known,
        "healthy": False,
        "no_restore": why,
        "summary": f"pid {pid}, given up: {why}",
    }


def put_in_vault(ctx: Context, name: str, value: Json) -> None:
    vault = state.read_json(ctx.vault) or {}
    state.write_private(ctx.vault, _dump({**vault, name: value}))


def read_vault(ctx: Context, reference: str) -> dict[str, Json] | None:
    """`old_server`, or `<deploy>/<name>` of an earlier deploy of this instance; None where it is not kept."""
    deploy, _, name = reference.rpartition("/")
    folder = ctx.deploy_dir.parent / deploy if deploy else ctx.deploy_dir
    found = (state.read_json(folder / "vault.json") or {}).get(name)
    return found if isinstance(found, dict) else None


def _dump(value: Json) -> bytes:
    import json

    return json.dumps(value, indent=1).encode()


def read_server(pid: int, start_ticks: int, port: int) -> dict[str, Json]:
    """What the vault holds of a live server. Raises OpFailed `server_changed` or `cannot_restore`."""
    process = procs.read_process(pid)
    if process is None or process.start_ticks != start_ticks or not process.living:
        raise OpFailed(
            "server_changed",
            f"the server with pid {pid} is not there any more: it changed after the plan was made",
            host_state="nothing was changed",
            next_command="plan again: specops plan",
        )
    server = {**_read_start(process), "port": port}
    scan = procs.scan_processes()
    cookie = server["env"].get(procs.COOKIE)
    found = members.find_members(scan, pid=pid, start_ticks=start_ticks, cookie=cookie)
    server["members"] = [list(scan[member].key) for member in sorted(found)]
    server["health"] = _probe(port, server["argv"])
    server["supervisor"] = supervisor.find_supervisor(scan, pid)
    server["scope"] = supervisor.find_scope(pid)
    return server


def find_hindrance(process: procs.Process) -> str | None:
    """Why this server could not be started again, as a capture would find; None where it could."""
    try:
        _read_start(process)
    except OpFailed as error:
        return error.message
    return None


def _read_start(process: procs.Process) -> dict[str, Json]:
    """All that starts it again just as it was. Raises `cannot_restore`."""
    pid = process.pid
    environ, argv = procs.read_environ(pid), procs.read_argv(pid)
    if environ is None or (os.geteuid() not in (0, process.uid)):
        owner = state.user_name(process.uid)
        raise _cannot(f"it runs as {owner}, whose environment this user may not read", "set `become` for it")
    if not argv or not environ:
        raise _cannot("its command line or environment is not readable", "start it again by hand")
    cwd = _check_cwd(pid)
    server = {
        "argv": argv,
        "env": environ,
        "cwd": cwd,
        "exe": _check_program(pid, argv, environ, cwd),
        **_identity(pid, process),
        "limits": read_limits(pid),
        "pid": pid,
        "start_ticks": process.start_ticks,
        "log": log_of(pid),
    }
    _check_models(argv, cwd)
    return server


def _identity(pid: int, process: procs.Process) -> dict[str, Json]:
    status = procs.read_status(pid)
    return {
        "uid": process.uid,
        "gid": int((status.get("Gid") or str(os.getegid())).split()[0]),
        "groups": [int(group) for group in status.get("Groups", "").split()],
        "umask": int(status["Umask"], 8) if "Umask" in status else None,
    }


def _probe(port: int, argv: list[str]) -> dict[str, Json]:
    """A rollback must bring back this verdict, no more."""
    api = api_of(port, argv)
    healthy = api.is_healthy(timeout_s=20.0)
    # a token is the truth: /health says 503 also under a long prefill, and 200 with a dead scheduler
    why_not = api.get_token()
    info = api.get_info(timeout_s=5.0) if not why_not else {}
    keep = ("version", "model_path", "served_model_name", "tp_size", "speculative_algorithm")
    return {
        "healthy": healthy,
        "token": not why_not,
        "why_not": why_not,
        "reported": {name: info[name] for name in keep if name in info},
    }


def _cannot(why: str, next_command: str) -> OpFailed:
    return OpFailed(
        "cannot_restore",
        f"the running server could not be started again: {why}",
        host_state=UNCHANGED,
        next_command=next_command,
    )


def _check_cwd(pid: int) -> str:
    cwd = procs.read_link(pid, "cwd")
    if cwd is None:
        raise _cannot("its working folder is not readable", "set `become` for it")
    if cwd.endswith(" (deleted)") or not os.path.isdir(cwd):
        raise _cannot(f"its working folder is gone: {cwd}", "start it again from a folder that exists")
    return cwd


def _check_program(pid: int, argv: list[str], environ: dict[str, str], cwd: str) -> str:
    """The path that argv[0] means in its own folder and PATH. /proc/<pid>/exe alone would lose a venv."""
    running = procs.read_link(pid, "exe") or ""
    if running.endswith(" (deleted)"):
        raise _cannot(f"its program is gone: {running}", "start it again by hand, with the new program")
    path = (
        os.path.join(cwd, argv[0]) if "/" in argv[0] else shutil.which(argv[0], path=environ.get("PATH", ""))
    )
    if path is None or os.path.realpath(path) != os.path.realpath(running):
        raise _cannot(
            f"its argv[0] {argv[0]!r} does not lead to the program that runs ({running})",
            "start it again by hand with the full path of its interpreter",
        )
    return path


def _check_models(argv: list[str], cwd: str) -> None:
    for flag in ("--model-path", "--speculative-draft-model-path"):
        aliases = (flag, "--model") if flag == "--model-path" else (flag, "--speculative-draft-model")
        value = members.find_option(argv, *aliases)
        local = value is not None and value.startswith(("/", "./", "../", "~"))
        if value and local and not os.path.exists(os.path.join(cwd, os.path.expanduser(value))):
            raise _cannot(
                f"its model folder is gone: {value}", "put the model back, or stop the server by hand"
            )


def read_limits(pid: int) -> dict[str, list[int]]:
    """rlimit number (as text, for JSON) -> [soft, hard]; -1 is unlimited."""
    try:
        with open(f"/proc/{pid}/limits") as file:
            lines = file.read().splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        for name, number in LIMITS.items():
            if line.startswith(name):
                soft, hard = line[len(name) :].split()[:2]
                found[str(number)] = [_limit(soft), _limit(hard)]
    return found


def _limit(word: str) -> int:
    return resource.RLIM_INFINITY if word == "unlimited" else int(word)


def log_of(pid: int) -> str | None:
    """The file that its standard error goes to, if it is one."""
    target = procs.read_link(pid, "fd/2")
    return target if target and target.startswith("/") and not target.startswith("/dev/") else None
