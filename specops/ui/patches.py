"""Patches: what there is, what each changes, and whether an install takes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from specops.ui.plan import show_diff
from specops.ui.terminal import heading, pairs, styled

Json = Any


def show_patches(console: Console, patches: Iterable[Mapping[str, Json]]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("patch", no_wrap=True)
    table.add_column("releases", overflow="fold", ratio=2)
    table.add_column("what it does", overflow="fold", ratio=3)
    for patch in patches:
        releases = ", ".join(str(release) for release in patch.get("releases") or ())
        table.add_row(str(patch.get("id")), releases, Text(str(patch.get("summary") or "")))
    console.print(table)


def show_patch(console: Console, patch: Mapping[str, Json]) -> None:
    heading(console, str(patch.get("id")))
    plain = [(str(n), str(v)) for n, v in patch.items() if isinstance(v, str | int | float) and n != "id"]
    pairs(console, plain)
    for release in patch.get("variants") or ():
        heading(console, f"SGLang {release.get('release')}")
        pairs(console, [(str(n), str(v)) for n, v in (release.get("proof") or {}).items()])
        for file in release.get("files") or ():
            console.print(Text(f"  {file.get('path')}", style="bold"), soft_wrap=True)
            if file.get("diff"):
                show_diff(console, str(file["diff"]))


def show_verification(console: Console, value: Mapping[str, Json]) -> None:
    """{"patch", "release", "ok": bool, "files": [{path, state}]}."""
    for file in value.get("files") or ():
        state = str(file.get("state"))
        good = "ok" if state in {"pristine", "applied"} else "fail"
        console.print(
            Text.assemble("  ", (state, styled(good).style), f"  {file.get('path')}"), soft_wrap=True
        )
    verdict = styled("pass" if value.get("ok") else "fail")
    console.print(Text.assemble(f"{value.get('patch')} for SGLang {value.get('release')}: ", verdict))


def show_rebase(console: Console, value: Mapping[str, Json]) -> None:
    """engine.rebase.Local.as_json(). The diffs are combined ones: against release and install."""
    heading(console, f"{value['id']}: the hunks of {value['release']} in this SGLang {value['version']}")
    for file in value.get("files") or ():
        console.print(Text(f"  {file['path']}", style="bold"), soft_wrap=True)
        for line in str(file["diff"]).splitlines():
            style = {"++": "green", "--": "red", "@@": "cyan"}.get(line[:2], "")
            console.print(Text(f"    {line}", style=style), soft_wrap=True)
    rows = [
        ("hunks", f"{value['hunks']}, {value['moved']} of them at another line than in the release"),
        ("added", ", ".join(value.get("added") or ()) or "no file"),
        ("stored", str(value["folder"])),
        ("proof", f"{value['proof']}: --accept-unproven deploys it, kept only if S0 to S7 all pass"),
    ]
    pairs(console, rows)
    console.print(Text(f"Type next: specops plan --host {value['host']} --accept-unproven"), soft_wrap=True)


def show_matrix(console: Console, value: Mapping[str, Json]) -> None:
    """{"patch", "ok": bool, "proofs": {level: lines}, "rows": [Cell of lab/matrix.py]}."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("SGLang", "worker", "topk", "applies", "imports", "flags", "proof"):
        table.add_column(name, no_wrap=True)
    table.add_column("why", overflow="fold", ratio=1)
    for cell in value.get("rows") or ():
        table.add_row(
            str(cell["release"]),
            str(cell["worker"] or "-"),
            str(cell["topk"] or "-"),
            "yes" if cell["applies"] else "no",
            str(cell["imports"]),
            str(cell["flags"]),
            str(cell["proof"]),
            Text(str(cell["reason"])),
        )
    console.print(table)
    held = ", ".join(f"{count} {level}" for level, count in (value.get("proofs") or {}).items())
    verdict = styled("pass" if value.get("ok") else "fail")
    console.print(Text.assemble(f"{value.get('patch')}: ", verdict, f" ({held})"))
