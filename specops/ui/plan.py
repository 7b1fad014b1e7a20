"""A plan, as an operator wants to read it before saying yes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from specops.ui.terminal import about, heading, pairs, row

Json = Any
DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def show_plan(console: Console, plan: Mapping[str, Json]) -> None:
    """`plan` is engine.plan.Plan.as_json(): the wire form and what explains it."""
    _title(console, plan)
    _diffs(console, plan.get("diffs") or ())
    if plan.get("launch"):
        heading(console, "Launch command")
        for line in launch_lines(plan["launch"]):
            console.print(Text(line), soft_wrap=True)
    changes = plan.get("env_changes") or {}
    if changes:
        heading(console, "Environment, against the server that runs now")
        for name, value in sorted(changes.items()):
            console.print(Text(f"  - {name}" if value is None else f"  + {name}={value}"), soft_wrap=True)
    _outage(console, plan.get("outage") or {})
    if plan.get("restores"):
        heading(console, "A rollback would bring back")
        for line in plan["restores"]:
            console.print(Text(f"  {line}"), soft_wrap=True)
    if plan.get("checks"):
        heading(console, "Preflight")
        pairs(console, [(str(c["name"]), _saw(c)) for c in plan["checks"]])
    if plan.get("notes"):
        heading(console, "Notes")
        for line in plan["notes"]:
            row(console, "  - ", str(line))
    _steps(console, plan.get("steps") or ())


def _title(console: Console, plan: Mapping[str, Json]) -> None:
    instance, summary = plan.get("instance") or {}, plan.get("summary") or {}
    heading(console, f"Plan {plan.get('id')}: {plan.get('kind')} on {plan.get('host')}")
    gate = str(summary.get("gate", "none"))
    if summary.get("threshold") is not None and gate != "none":
        gate += f", threshold {summary['threshold']}"
    rows = [
        ("server", f"port {instance.get('port')}, SGLang {summary.get('release', 'of unknown release')}"),
        ("install", str(instance.get("root") or instance.get("python") or "")),
        ("gate", gate),
        ("patches", ", ".join(summary.get("patches") or ()) or "none"),
    ]
    if summary.get("replaces"):
        rows.append(("replaces", f"deploy {summary['replaces']}"))
    pairs(console, rows)


def _diffs(console: Console, diffs: Any) -> None:
    heading(console, "Files")
    if not diffs:
        console.print("  no file changes")
    for each in diffs:
        console.print(Text(f"  {each['path']}", style="bold"), soft_wrap=True)
        show_diff(console, str(each.get("diff", "")))


def show_diff(console: Console, diff: str) -> None:
    for line in diff.rstrip("\n").splitlines():
        console.print(Text(f"    {line}", style=DIFF_STYLES.get(line[:1], "")), soft_wrap=True)


def launch_lines(argv: list[str]) -> list[str]:
    """One option with its values a line, and backslashes, so that the whole can be pasted."""
    groups: list[list[str]] = [[]]
    for item in argv:
        if item.startswith("--") and groups[-1]:
            groups.append([])
        groups[-1].append(item)
    lines = [shlex.join(group) for group in groups]
    ends = [" \\"] * (len(lines) - 1) + [""]
    return [
        ("  " if index == 0 else "    ") + line + end
        for index, (line, end) in enumerate(zip(lines, ends, strict=True))
    ]


def _outage(console: Console, outage: Mapping[str, Json]) -> None:
    heading(console, "Outage")
    replaces, load_s, restore_s = outage.get("replaces"), outage.get("load_s"), outage.get("restore_s")
    rows = [("stops", str(replaces) if replaces else "nothing: no server is serving")]
    rows.append(("if it works", _load(load_s)))
    if replaces:
        both = None if load_s is None or restore_s is None else load_s + restore_s
        rows.append(
            (
                "if it fails",
                "one load of the new server and one of the old, of unknown length"
                if both is None
                else f"{about(both)}: the new load and the old one",
            )
        )
    pairs(console, rows)


def _saw(check: Mapping[str, Json]) -> str:
    return f"{check['saw']}" if check.get("verdict") == "ok" else f"WARNING: {check['saw']}"


def _load(seconds: float | None) -> str:
    return "one load, of unknown length: none was measured here" if seconds is None else about(seconds)


def _steps(console: Console, steps: Any) -> None:
    heading(console, "Steps")
    for number, step in enumerate(steps, start=1):
        undo = step.get("undo") or {}
        mark = " (cannot be undone)" if "irreversible" in undo else ""
        prefix = Text.assemble(f"  {number:>2} ", (f"{step['phase']:<9}", "dim"))
        row(console, prefix, f"{step['name']}{mark}")
