"""The evidence of a failed deploy on one screen: the cause, the lines around it, who lived, what was held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from specops.ui.terminal import heading, pairs

Json = Any
WIDTH = 160
"""Columns of a log line; SGLang prints all its arguments in one."""
PROCESSES = 24


def show_evidence(console: Console, evidence: Mapping[str, Json]) -> None:
    """`evidence` is engine.evidence.describe_bundle(), perhaps with `kept in`."""
    heading(console, f"Evidence of {evidence.get('deploy', 'the deploy')}")
    _cause(console, evidence.get("cause") or {})
    _root(console, evidence.get("root"))
    _ranks(console, evidence.get("ranks"))
    _log(console, evidence.get("log"))
    _processes(console, evidence.get("processes"))
    _machine(console, evidence)
    _files(console, evidence)


def _cause(console: Console, cause: Mapping[str, Json]) -> None:
    detail = cause.get("detail")
    detail = detail if isinstance(detail, Mapping) else {}
    known = {**(detail.get("cause") or {}), **detail} if isinstance(detail.get("cause"), Mapping) else detail
    issues = " ".join(_issue(str(number)) for number in known.get("issues") or ())
    said = [
        ("failed at", str(cause.get("step") or "")),
        ("cause", str(cause.get("message") or "")),
        ("rank", str(known.get("rank") or "")),
        ("change", str(known.get("action") or cause.get("next_command") or "")),
        ("known", issues),
    ]
    pairs(console, [pair for pair in said if pair[1]])
    frames = known.get("traceback") or ()
    if frames:
        heading(console, "The first root traceback, its last frames")
        _lines(console, frames)


def _issue(number: str) -> str:
    return f"https://github.com/sgl-project/sglang/issues/{number[1:]}" if number.startswith("#") else number


def _root(console: Console, root: Mapping[str, Json] | None) -> None:
    if not root:
        return
    heading(console, "Log around the root cause")
    _lines(console, root.get("before") or ())
    _lines(console, [str(root.get("root"))], style="bold red")
    _lines(console, root.get("after") or ())


def _ranks(console: Console, ranks: Mapping[str, Mapping[str, Json]] | None) -> None:
    if not ranks:
        return
    heading(console, "Last line of each rank")
    pairs(console, [(rank, str(said.get("last"))[:WIDTH]) for rank, said in ranks.items()])


def _log(console: Console, log: Mapping[str, Sequence[str]] | None) -> None:
    if not log:
        return
    heading(console, "Log, its beginning and its end")
    _lines(console, log.get("head") or ())
    if log.get("tail"):
        console.print("    […]", style="dim")
        _lines(console, log["tail"])


def _processes(console: Console, processes: Sequence[Mapping[str, Json]] | None) -> None:
    heading(console, "Processes of the server when it failed")
    if not processes:
        console.print("  none was left")
        return
    rows = [
        (
            f"{process.get('pid')} {process.get('state')}",
            f"{process.get('rss') or '?'}, waits in {process.get('waits_in') or '-'}: "
            f"{' '.join(map(str, process.get('argv') or ()))[:80]}",
        )
        for process in processes[:PROCESSES]
    ]
    pairs(console, rows)


def _machine(console: Console, evidence: Mapping[str, Json]) -> None:
    ports, gpus, versions = (evidence.get(name) or {} for name in ("ports", "gpus", "versions"))
    heading(console, "Ports, GPUs, versions")
    rows = []
    if ports:
        rows.append((f"port {ports.get('port')}", "free" if ports.get("free") else "held"))
    found = gpus.get("gpus")
    if isinstance(found, list):
        rows += [
            (f"gpu {gpu.get('index')}", f"{gpu.get('name')}, {int(gpu.get('mem_free') or 0) >> 20} MiB free")
            for gpu in found
        ]
    else:
        rows.append(("gpus", "none"))
    rows += [(str(name), str(value)) for name, value in versions.items() if value]
    pairs(console, rows)


def _files(console: Console, evidence: Mapping[str, Json]) -> None:
    files = evidence.get("files") or ()
    heading(
        console, f"{len(files)} files" + (f", kept in {evidence['kept in']}" if "kept in" in evidence else "")
    )
    pairs(console, [(str(file.get("name")), f"{file.get('size')} bytes") for file in files])
    for said in evidence.get("missing") or ():
        console.print(Text(f"  missing: {said}", style="yellow"), soft_wrap=True)


def _lines(console: Console, lines: Sequence[Json], *, style: str = "") -> None:
    for line in lines:
        console.print(Text(f"    {str(line)[:WIDTH]}", style=style), soft_wrap=True)
