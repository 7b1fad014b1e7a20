"""Starting a server from data: its own session, its own environment, its own log file."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import resource
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import keeper, loads, logout, members, procs, redact, state, supervised
from .capture import OLD_SERVER, read_vault
from .context import Context, OpFailed

Json = Any
LOGIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
COPY = re.compile(r"/instances/[^/]+/deploys/[^/]+/copy/?$")
"""Of any deploy on this machine (activation.py)."""
SECRET = re.compile(r"\{secret:([^{}]+)\}")
"""In a plan's launch: the vault holds what it stands for."""
SERVER_FILE = "server.json"
"""In the deploy's folder: the pid, start ticks, log and cookie of what `server.launch` started."""


@dataclass(frozen=True)
class Start:
    """A resolved launch: nothing left to fill in."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    port: int
    cookie: str
    log: Path
    umask: int = -1
    limits: dict[str, list[int]] = field(default_factory=dict)
    uid: int | None = None
    gid: int | None = None
    groups: list[int] = field(default_factory=list)


def launch(ctx: Context, args: dict[str, Json]) -> dict[str, Json]:
    spec = args["launch"]
    kept = read_vault(ctx, str(spec["vault"])) if spec.get("vault") else None
    control = (kept or {}).get("supervisor", {}) or {}
    if kept is not None and control.get("control"):
        return start_supervised(ctx, kept, str(spec["cookie"]), int(spec["port"]), SERVER_FILE)
    note = start_server(resolve(ctx, spec), ctx.deploy_dir / SERVER_FILE)
    keeper.start(ctx, note)
    return note


def start_supervised(
    ctx: Context, kept: dict[str, Json], cookie: str, port: int, name: str
) -> dict[str, Json]:
    """Start a captured server through its supervisor, and write down what it became. It carries no cookie:
    it is known by its pid. Raises `port_taken` or `supervisor_refused`."""
    require_free(port)
    control = kept["supervisor"]["control"]
    process = supervised.start(control)
    facts = {
        "pid": process.pid,
        "start_ticks": process.start_ticks,
        "pgid": process.pgid,
        "boot_id": state.boot_id(),
        "cookie": cookie,
        "port": port,
        "argv": redact.redact_argv(kept["argv"]),
        "cwd": kept["cwd"],
        "log": kept.get("log") or str(ctx.deploy_dir / "no-log"),
        "control": control,
        **loads.describe_models(kept["argv"]),
        "at": time.time(),
    }
    state.write_private(ctx.deploy_dir / name, json.dumps(facts, indent=1).encode())
    return facts


def require_free(port: int) -> None:
    if not procs.port_is_free(port):
        holder = members.describe_holder(procs.scan_processes(), port)
        raise OpFailed("port_taken", f"port {port} is held by {holder}", host_state="no server was started")


def expand(ctx: Context, text: str) -> str:
    return state.expand(text, deploy_dir=ctx.deploy_dir, machine=ctx.store_dir.parent)


def resolve(ctx: Context, spec: dict[str, Json]) -> Start:
    """A LaunchSpec on this host. Raises `cannot_launch` for what could not be started at all."""

    def fill(text: str) -> str:
        return SECRET.sub(lambda found: _secret(ctx, found[1]), expand(ctx, text))

    kept = _kept_server(ctx, spec)
    if spec.get("vault"):
        argv, cwd = list(kept["argv"]), str(kept["cwd"])
        env = {**kept["env"]}
    else:
        argv, cwd = [fill(str(word)) for word in spec["argv"]], fill(str(spec.get("cwd") or "~"))
        env = build_env(spec.get("env") or {}, kept, fill)
    env[procs.COOKIE] = str(spec["cookie"])
    # without it SGLang's workers overwrite their environment with their title, and the cookie in it
    env["SPT_NOENV"] = "1"
    scope = kept.get("scope") if spec.get("vault") else spec.get("scope")
    if scope:
        argv = [*logout.scope_argv(str(scope), str(spec["cookie"])), *argv]
        env.setdefault("XDG_RUNTIME_DIR", logout.runtime_dir())
    start = Start(
        argv=argv,
        env=env,
        cwd=cwd,
        port=int(spec["port"]),
        cookie=str(spec["cookie"]),
        log=Path(fill(str(spec.get("log") or "{deploy_dir}/server.log"))),
        umask=kept["umask"] if isinstance(kept.get("umask"), int) else -1,
        limits=kept.get("limits") or {},
        **_identity(kept),
    )
    _check(start)
    return start


def _secret(ctx: Context, name: str) -> str:
    if name not in ctx.secrets:
        what = f"the vault of this deploy holds no secret {name!r}"
        raise OpFailed("cannot_launch", what, host_state="no server was started")
    return ctx.secrets[name]


def _kept_server(ctx: Context, spec: dict[str, Json]) -> dict[str, Json]:
    """The captured server that a launch starts from; empty for a launch from a login's environment."""
    base = str((spec.get("env") or {}).get("base") or "login")
    reference = str(spec.get("vault") or "") or (base[6:] if base.startswith("vault:") else "")
    if not reference and base == OLD_SERVER:
        reference = OLD_SERVER
    if not reference:
        return {}
    found = read_vault(ctx, reference)
    if found is None:
        raise OpFailed(
            "cannot_launch",
            f"the vault of this host holds no {reference!r}",
            host_state="no server was started",
            next_command="specops history",
        )
    if found.get("nothing") and spec.get("vault"):
        raise OpFailed("cannot_launch", f"nothing was serving when {reference!r} was noted")
    return {} if found.get("nothing") else found


def build_env(spec: dict[str, Json], kept: dict[str, Json], expand: Any) -> dict[str, str]:
    """From data alone: nothing of the agent's own environment gets in."""
    env = dict(kept.get("env") or login_env())
    for name in (procs.COOKIE, *supervised.INHERITED):
        env.pop(name, None)
    for name in spec.get("unset") or ():
        env.pop(str(name), None)
    env.update({str(name): expand(str(value)) for name, value in (spec.get("set") or {}).items()})
    front = [expand(str(folder)) for folder in spec.get("path") or ()]
    rest = [part for part in env.get("PATH", LOGIN_PATH).split(":") if part and part not in front]
    env["PATH"] = ":".join([*front, *rest])
    _set_modules(env, [expand(str(folder)) for folder in spec.get("modules") or ()])
    return env


def _set_modules(env: dict[str, str], front: list[str]) -> None:
    """`front` before the module path, and no copy that an earlier deploy was launched from behind it."""
    was = env.get("PYTHONPATH", "").split(":") if env.get("PYTHONPATH") else []
    parts = [*front, *(part for part in was if part not in front and not COPY.search(part))]
    if parts != was:
        env["PYTHONPATH"] = ":".join(parts)
    if not parts:
        env.pop("PYTHONPATH", None)


def login_env() -> dict[str, str]:
    """What a plain login of this user has, without any of its shell's start files."""
    try:
        entry = pwd.getpwuid(os.geteuid())
        home, name, shell = entry.pw_dir, entry.pw_name, entry.pw_shell
    except KeyError:
        home, name, shell = os.path.expanduser("~"), str(os.geteuid()), "/bin/sh"
    return {
        "HOME": home,
        "USER": name,
        "LOGNAME": name,
        "SHELL": shell or "/bin/sh",
        "PATH": LOGIN_PATH,
        "LANG": "C.UTF-8",
    }


def _identity(kept: dict[str, Json]) -> dict[str, Json]:
    uid = kept.get("uid")
    if uid is None or uid == os.geteuid():
        return {}
    return {"uid": uid, "gid": kept.get("gid"), "groups": kept.get("groups") or []}


def _check(start: Start) -> None:
    program = start.argv[0] if start.argv else ""
    path = (
        os.path.join(start.cwd, program)
        if "/" in program
        else shutil.which(program, path=start.env.get("PATH"))
    )
    wrong = ""
    if not os.path.isdir(start.cwd):
        wrong = f"its working folder does not exist: {start.cwd}"
    elif path is None or not os.access(path, os.X_OK):
        wrong = f"{program!r} is no program on this host"
    if wrong:
        raise OpFailed(
            "cannot_launch", f"the server cannot be started: {wrong}", host_state="no server was started"
        )


def start_server(start: Start, note: Path) -> dict[str, Json]:
    """Start it and write down what it is. Raises `port_taken` or `cannot_launch`; nothing runs then."""
    require_free(start.port)
    log = os.open(start.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    user = group = None
    if start.uid is not None:
        user, group = start.uid, start.gid
        os.fchown(log, start.uid, start.gid if start.gid is not None else -1)
    try:
        child = subprocess.Popen(
            start.argv,
            env=start.env,
            cwd=start.cwd,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            umask=start.umask,
            user=user,
            group=group,
            extra_groups=start.groups if user is not None else None,
        )
    except OSError as error:
        raise OpFailed("cannot_launch", f"the server cannot be started: {error}") from error
    finally:
        os.close(log)
    procs.CHILDREN[child.pid] = child
    _set_limits(child.pid, start.limits)
    return _note(start, child.pid, note)


def _set_limits(pid: int, limits: dict[str, list[int]]) -> None:
    """As the captured server had them, as far as this user may set them."""
    for number, (soft, hard) in limits.items():
        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(pid, int(number), (soft, hard))


def _note(start: Start, pid: int, note: Path) -> dict[str, Json]:
    process = procs.read_process(pid)
    facts = {
        "pid": pid,
        "start_ticks": process.start_ticks if process else 0,
        "pgid": pid,
        "boot_id": state.boot_id(),
        "cookie": start.cookie,
        "port": start.port,
        "argv": redact.redact_argv(start.argv),
        "cwd": start.cwd,
        "log": str(start.log),
        **loads.describe_models(start.argv),
        "at": time.time(),
    }
    state.write_private(note, json.dumps(facts, indent=1).encode())
    return facts


def read_note(ctx: Context, cookie: str) -> dict[str, Json]:
    """What was started under `cookie`, by this deploy's own notes; empty if nothing, or before a reboot."""
    for name in (SERVER_FILE, f"old-{SERVER_FILE}"):
        note = state.read_json(ctx.deploy_dir / name)
        if isinstance(note, dict) and note.get("cookie") == cookie and note.get("boot_id") == state.boot_id():
            return note
    return {}
