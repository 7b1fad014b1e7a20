"""What journals say of an instance: its state, its deploys, its lock, its logs and evidence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from specops.engine.outcome import cause_line
from specops.engine.words import since
from specops.ui.facts import asked_for, lock_line
from specops.ui.plain import write_result
from specops.ui.terminal import STYLES, duration, pairs

Json = Any
HOW_STYLES = {
    "deployed": STYLES["pass"],
    "inconclusive": STYLES["inconclusive"],
    "refused": STYLES["refused"],
    "rolled back": "red",
    "rollback failed": STYLES["fail"],
}


def show_status(console: Console, status: Mapping[str, Json]) -> None:
    """`status` is engine.status.Status.as_json()."""
    unfinished, deploy = status.get("unfinished"), status.get("deploy")
    rows = [("lock", lock_line(status.get("lock")))]
    if unfinished:
        phase = unfinished.get("phase")
        rows.append(("unfinished", f"{unfinished.get('id')}, in phase {phase}: specops recover"))
    rows += [("unfinished", str(line)) for line in status.get("others") or ()]
    rows.append(
        ("in force", f"{deploy}: {asked_for(status.get('summary') or {})}" if deploy else "no deploy")
    )
    if status.get("gate"):
        rows.append(("gate now", str(status["gate"])))
    rows += [("drift", str(line)) for line in status.get("drift") or ()]
    healthy = "" if status.get("healthy") else ", NOT healthy"
    age = f", since {since(status['since'])}" if status.get("since") else ""
    rows.append(("serving now", f"{status.get('serving')}{healthy if age else ''}{age}"))
    pairs(console, rows)


def show_history(console: Console, history: Mapping[str, Json]) -> None:
    """{"deploys", "sweeps", "smokes": newest first, "stack": ids in force}."""
    from specops.ui.measured import show_measured

    deploys, stack = history.get("deploys") or (), set(history.get("stack") or ())
    if not deploys:
        console.print("no deploys on this instance")
    for deploy in deploys:
        how = _how(deploy)
        mark = " (in force)" if deploy.get("id") in stack else ""
        line = Text.assemble(
            f"{deploy.get('id')}  {deploy.get('kind')}  ", (how, HOW_STYLES.get(how, "")), mark
        )
        console.print(line, soft_wrap=True)
        pairs(console, _details(deploy))
    show_measured(console, history)


def _details(deploy: Mapping[str, Json]) -> list[tuple[str, str]]:
    summary, by = deploy.get("summary") or {}, deploy.get("by") or {}
    rows = [("opened", f"{since(deploy.get('opened_at'))} by {by.get('user', '?')}@{by.get('host', '?')}")]
    opened, closed = deploy.get("opened_at"), deploy.get("closed_at")
    if opened and closed:
        rows.append(("took", duration(closed - opened)))
    if summary:
        rows.append(("asked for", asked_for(summary)))
    checks = deploy.get("checks") or ()
    if checks:
        rows.append(("checks", " ".join(f"{check.get('id')}:{check.get('verdict')}" for check in checks)))
    if deploy.get("cause"):
        rows.append(("cause", cause_line(deploy["cause"])))
    rows += [("not undone", cause_line(failure)) for failure in deploy.get("failures") or ()]
    return rows


def _how(deploy: Mapping[str, Json]) -> str:
    return str(deploy.get("how") or f"in phase {deploy.get('phase', '?')}")


def show_lock(console: Console, owner: Mapping[str, Json] | None) -> None:
    pairs(console, [("lock", lock_line(owner))])


def show_broken(console: Console, value: Mapping[str, Json]) -> None:
    """{"broken": "nothing held" | "told" | "killed", "owner": …}."""
    said = {
        "nothing held": "nobody holds the lock; nothing was done",
        "told": "the holder was told to end; it takes back what it did",
        "killed": "the holder was killed; its guardian takes back what it did",
    }
    console.print(Text(said.get(str(value.get("broken")), str(value.get("broken")))))
    if value.get("owner"):
        pairs(console, [("holder", lock_line(value["owner"]))])


def show_clean(console: Console, value: Mapping[str, Json]) -> None:
    verb = "would remove" if value.get("dry_run") else "removed"
    removed = value.get("removed") or ()
    console.print(
        f"{verb} {len(removed)} deploys, {len(value.get('store') or ())} stored files and "
        f"{len(value.get('agents') or ())} agents, {int(value.get('bytes') or 0) / 2**20:.1f} MiB; "
        f"kept {value.get('kept')} deploys"
    )
    for deploy in removed:
        console.print(f"  {deploy}")


def show_log(console: Console, value: Mapping[str, Json]) -> None:
    """The text goes to stdout, so that it can be searched and kept; where it is from does not."""
    if not value.get("continued"):
        console.print(
            Text(f"{value.get('which')} log of {value.get('deploy')}: {value.get('path')}"), soft_wrap=True
        )
    text = str(value.get("text") or "")
    if text:
        write_result(text.removesuffix("\n"))
