"""What is true on this host, in one pass and without changing anything."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import socket
import sys
import time
import zlib
from pathlib import Path
from typing import Any

from . import gpus, loads, logout, members, models, procs, redact, room, runtime, state, store, supervisor
from .context import OpFailed
from .request import Request
from .users import DEFAULT_PORT, find_ranks, find_users

Json = Any
START_OF_LOG = 4 * 1024 * 1024
"""Bytes in which a server says how it starts."""
GATE_OFF = re.compile(rb"speculative_adaptive disabled: [^\r\n]{0,400}")


def answer(request: Request) -> Json:
    return read_facts(request.params)


def read_facts(params: dict[str, Json]) -> dict[str, Json]:
    """ARCHITECTURE, Facts. `params`: {instance, files, paths, models, hub, ports, contents, secrets}.

    `contents`: sha256 of which the bytes are wanted too, should one of `files` have it; it saves a request.
    `hub`: what the launch sets and unsets of the variables that say where models of the hub are.
    `secrets`: keyed hashes of values that the server may have.
    """
    from .history import state_facts

    instance = params.get("instance") or params
    port = int(instance["port"])
    scan = procs.scan_processes()
    server = read_server(scan, port, params.get("secrets") or {})
    known = state_facts(params)
    if server and not server["cookie"] and known["dir"]:
        server["cookie"] = loads.find_cookie(
            Path(known["dir"]) / "instances" / known["key"] / "deploys", server["pid"], server["start_ticks"]
        )
    install = read_install(str(instance["python"]), params.get("files") or (), instance.get("root"))
    mine = set((server or {}).get("members") or ())
    ranks = find_ranks(scan, install["root"], mine) if install else []
    hub = read_hub(server, params.get("hub") or {}) if params.get("models") else None
    return {
        "platform": read_platform(scan, server),
        "install": install,
        "contents": read_contents(install, set(params.get("contents") or ())),
        "paths": {
            str(path): store.digest_file(os.path.expanduser(str(path))) for path in params.get("paths") or ()
        },
        "models": {str(path): models.read_model(str(path), hub) for path in params.get("models") or ()},
        "runtime": runtime.read_runtime(install["root"], install["python"]) if install else None,
        "gpus": gpus.with_held(gpus.read_gpus(), mine | {rank["pid"] for rank in ranks}),
        "room": room.read_room(
            [*_folders(instance), *(str(path) for path in params.get("models") or () if path[:1] in "/~")],
            [int(asked) for asked in params.get("ports") or ()],
            str(instance["python"]),
        ),
        "holders": read_holders(scan, server, mine | {rank["pid"] for rank in ranks}),
        "server": server,
        "port": read_port(scan, port, server),
        "ranks": ranks,
        "users": find_users(scan, install["root"], mine) if install else [],
        "state": known,
    }


def read_hub(server: Json, change: dict[str, Json]) -> models.Hub:
    """Of the launch that is planned, which starts from the old server's environment, else from a login's."""
    from .launch import login_env

    base = procs.read_environ(server["pid"]) if server else None
    return models.hub_of(login_env() if base is None else base, change)


def read_holders(scan: dict[int, procs.Process], server: Json, mine: set[int]) -> list[dict[str, Json]]:
    """Who else is on the GPUs of the server that would be stopped."""
    from . import holders

    if not server:
        return []
    held = holders.read_holding(scan, server["pid"], mine)
    return holders.find_others(scan, held, mine) if held.uuids or held.devices else []


def _folders(instance: dict[str, Json]) -> list[str]:
    return [str(instance.get("state") or state.DEFAULT_STATE)]


def read_platform(scan: dict[int, procs.Process], server: Json) -> dict[str, Json]:
    memory = _read_pairs("/proc/meminfo")
    boss = (server or {}).get("supervisor") or {}
    return {
        "machine_id": state.machine_id(),
        "boot_id": state.boot_id(),
        "hostname": socket.gethostname(),
        "user": state.user_name(os.geteuid()),
        "uid": os.geteuid(),
        "home": os.path.expanduser("~"),
        "python": sys.version.split()[0],
        "kernel": os.uname().release,
        "cores": len(os.sched_getaffinity(0)),
        "mem_total": _kilobytes(memory.get("MemTotal")),
        "mem_available": _kilobytes(memory.get("MemAvailable")),
        # a container matters where the server lives and dies with it
        "container": (boss.get("name") or boss.get("how")) if boss.get("kind") == "container" else None,
        "logout": logout.read_logout(state.user_name(os.geteuid())),
        "now": time.time(),
    }


def _read_pairs(path: str) -> dict[str, str]:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _kilobytes(text: str | None) -> int:
    return int(text.split()[0]) * 1024 if text else 0


def read_install(python: str, files: Json, root: Json = None) -> Json:
    """None where the interpreter has no sglang. Nothing of it is imported."""
    path = os.path.expanduser(python)
    try:
        folder = Path(os.path.realpath(os.path.expanduser(str(root)))) if root else state.find_root(path)
    except OpFailed:
        return None
    if not (folder / "__init__.py").exists():
        return None
    hashes = {str(name): store.digest_file(folder / str(name)) for name in files}
    parents = {folder, *((folder / str(name)).parent for name in files)}
    return {
        "python": path,
        "root": str(folder),
        "version": read_version(folder) or _version_beside(path, "sglang") or "unknown",
        "torch": metadata_version(folder.parent, "torch") or _version_beside(path, "torch"),
        "writable": all(os.access(parent, os.W_OK) for parent in parents if parent.exists()),
        "files": hashes,
    }


def read_contents(install: Json, wanted: set[str]) -> dict[str, str]:
    """sha256 -> base64 of the zlib stream. A file that changed since it was hashed is left out."""
    found = {}
    for name, digest in (install or {"files": {}})["files"].items():
        if digest in wanted:
            with contextlib.suppress(OSError):
                data = (Path(install["root"]) / name).read_bytes()
                if store.sha256(data) == digest:
                    found[digest] = base64.b64encode(zlib.compress(data)).decode()
    return found


def _version_beside(python: str, name: str) -> str | None:
    """Of an editable install: its metadata is with the interpreter, not beside the checkout."""
    for site in Path(python).parent.parent.glob("lib/python3*/site-packages"):
        found = metadata_version(site, name)
        if found:
            return found
    return None


def read_version(root: Path) -> str | None:
    """From the package's own version file (what the running code says), else the installer's metadata."""
    for name in ("_version.py", "version.py"):
        with contextlib.suppress(OSError):
            text = (root / name).read_text(errors="replace")
            found = re.search(
                r"^(?:__version__ = )?(?:version = )?(?:__version__ = )?['\"]([0-9][\w.+]*)['\"]", text, re.M
            )
            if found:
                return found.group(1)
    return metadata_version(root.parent, "sglang")


def metadata_version(site: Path, name: str) -> str | None:
    """By the folder's name: reading thousands of entries through importlib.metadata costs more."""
    for found in sorted(site.glob(f"{name}-*.dist-info")):
        return found.name[len(name) + 1 : -len(".dist-info")]
    return None


def read_server(scan: dict[int, procs.Process], port: int, asked: dict[str, Json] | None = None) -> Json:
    """The SGLang server that listens on `port`; None where nobody does, or somebody else."""
    holders = procs.port_holders(scan, port) or _claimants(scan, port)
    launchers = {members.find_launcher(scan, pid) for pid in holders}
    found = sorted(pid for pid in launchers if members.is_sglang(procs.read_argv(pid)))
    if not found:
        return None
    # these load an HTTP client, which the start of most agents need not wait for
    from .api import api_of
    from .capture import find_hindrance

    pid = found[0]
    process, argv, environ = scan[pid], procs.read_argv(pid), procs.read_environ(pid) or {}
    cookie = environ.get(procs.COOKIE)
    mine = members.find_members(scan, pid=pid, start_ticks=process.start_ticks, cookie=cookie)
    api = api_of(port, argv)
    healthy = api.is_healthy()
    return {
        "pid": pid,
        "start_ticks": process.start_ticks,
        "pgid": process.pgid,
        "uid": process.uid,
        "argv": redact.redact_argv(argv),
        "cwd": procs.read_link(pid, "cwd") or "",
        "env": redact.redact_env(environ),
        "no_restore": find_hindrance(process),
        "same": redact.same_secrets(asked or {}, argv, environ),
        "members": sorted(mine),
        "supervisor": supervisor.find_supervisor(scan, pid),
        "healthy": healthy,
        "reported": api.get_info() if healthy else {},
        "cookie": cookie,
        "since": procs.start_time(process),
        "gate_off": find_gate_off(pid),
    }


def find_gate_off(pid: int) -> str | None:
    """What SGLang said when it switched the native gate off: it goes on without a gate, and healthy."""
    from . import capture

    path = capture.log_of(pid)
    if path is None:
        return None
    for name in (f"{path}.1", path):  # a log that was capped keeps its beginning there
        with contextlib.suppress(OSError), open(name, "rb") as log:
            found = GATE_OFF.search(log.read(START_OF_LOG))
            if found:
                return found.group().decode("utf-8", "replace").strip()
    return None


def _claimants(scan: dict[int, procs.Process], port: int) -> set[int]:
    """Another user's sockets are not ours to look up: their owner and the command line tell as much."""
    owners = {listener.uid for listener in procs.read_listeners(port)}
    found = set()
    for pid, process in scan.items():
        argv = procs.read_argv(pid) if process.uid in owners else []
        asked = members.find_option(argv, "--port") or DEFAULT_PORT
        if members.is_sglang(argv) and asked == str(port) and not argv[0].startswith("sglang::"):
            found.add(pid)
    return found


def read_port(scan: dict[int, procs.Process], port: int, server: Json) -> dict[str, Json]:
    if server is not None:
        return {"free": False, "holder": None}
    free = procs.port_is_free(port)
    holder: Json = None
    if not free:
        holder = {"pid": None, "user": "?", "argv": []}
        for listener in procs.read_listeners(port)[:1]:
            holder["user"] = state.user_name(listener.uid)
        for pid in sorted(procs.port_holders(scan, port))[:1]:
            holder = {
                "pid": pid,
                "user": state.user_name(scan[pid].uid),
                "argv": redact.redact_argv(procs.read_argv(pid)),
            }
    return {"free": free, "holder": holder}
