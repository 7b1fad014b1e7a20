"""What is true on a host, for people."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from specops.ui.terminal import heading, pairs

Json = Any


def show_facts(console: Console, facts: Mapping[str, Json]) -> None:
    """`facts` as the agent tells them (ARCHITECTURE, Facts)."""
    platform = facts.get("platform") or {}
    heading(console, f"{platform.get('hostname', 'host')}")
    rows = [
        ("user", f"{platform.get('user')} (uid {platform.get('uid')}), home {platform.get('home')}"),
        ("machine", f"{platform.get('cores')} cores, {_memory(platform)}, kernel {platform.get('kernel')}"),
        ("gpus", gpu_line(facts.get("gpus"))),
        ("container", str(platform.get("container") or "no")),
        ("install", _install(facts.get("install"))),
    ]
    rows += [(f"model {path}", _model(model)) for path, model in (facts.get("models") or {}).items()]
    rows += _server(facts.get("server"), facts.get("port") or {})
    rows += state_rows(facts.get("state") or {})
    pairs(console, rows)


def gpu_line(gpus: Json) -> str:
    if not gpus or gpus == "none":
        return "none"
    names = sorted({str(gpu.get("name")) for gpu in gpus})
    free = sum(int(gpu.get("mem_free") or 0) for gpu in gpus)
    total = sum(int(gpu.get("mem_total") or 0) for gpu in gpus)
    return f"{len(gpus)} x {', '.join(names)}, {_size(free)} of {_size(total)} free"


def state_rows(state: Mapping[str, Json]) -> list[tuple[str, str]]:
    """Lock, unfinished and current deploy of an instance."""
    rows = [("lock", lock_line(state.get("lock")))]
    unfinished = state.get("unfinished")
    if unfinished:
        rows.append(("unfinished", f"{unfinished.get('id')} ended in phase {unfinished.get('phase')}"))
    current = state.get("current")
    rows.append(
        (
            "current",
            f"{current.get('id')}: {asked_for(current.get('summary') or {})}"
            if current
            else "no deploy of specops is in force",
        )
    )
    return rows


def lock_line(lock: Mapping[str, Json] | None) -> str:
    if not lock:
        return "free"
    from specops.engine.words import since

    who = f"{lock.get('user')}@{lock.get('host')} since {since(lock.get('since'))}"
    why = lock.get("why") or "no reason given"
    return f"{who}: deploy {lock.get('deploy')}, phase {lock.get('phase')}, {why}"


def asked_for(summary: Mapping[str, Json]) -> str:
    """What a deploy wanted, in one line."""
    gate = f"gate {summary.get('gate', 'none')}"
    if summary.get("threshold") is not None:
        gate += f", threshold {summary['threshold']}"
    patches = ", ".join(summary.get("patches") or ())
    reverts = f"takes back {summary['reverts']}" if summary.get("reverts") else ""
    return reverts or f"{gate}{', patches ' + patches if patches else ''}"


def _install(install: Mapping[str, Json] | None) -> str:
    if not install:
        return "no SGLang"
    read_only = "" if install.get("writable", True) else ", read-only"
    return f"SGLang {install.get('version')}, torch {install.get('torch')}{read_only}, {install.get('root')}"


def _model(model: Mapping[str, Json]) -> str:
    if not model.get("exists"):
        return f"missing {model.get('detail') or ''}".strip()
    return "complete" if model.get("complete") else f"incomplete: {model.get('detail')}"


def _server(server: Mapping[str, Json] | None, port: Mapping[str, Json]) -> list[tuple[str, str]]:
    if not server:
        holder = port.get("holder")
        return [("server", f"none; the port is held by {holder}" if holder else "none; the port is free")]
    health = "healthy" if server.get("healthy") else "NOT healthy"
    rows = [
        ("server", f"pid {server.get('pid')}, {health}, {len(server.get('members') or ())} processes"),
        ("its command", shlex.join(map(str, server.get("argv") or ()))),
    ]
    supervisor = server.get("supervisor")
    if supervisor:
        rows.append(("supervisor", f"{supervisor.get('kind')} {supervisor.get('name')}"))
    return rows


def _memory(platform: Mapping[str, Json]) -> str:
    total, free = platform.get("mem_total"), platform.get("mem_available")
    return "memory unknown" if not total else f"{_size(int(free or 0))} of {_size(int(total))} memory free"


def _size(count: int) -> str:
    """Bytes, in GiB."""
    return f"{count / 2**30:.0f} GiB"
