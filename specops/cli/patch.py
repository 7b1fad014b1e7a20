"""Commands about patches: what there is, what each changes, and whether a host's install takes it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from specops.cli.options import AcceptNew, AsJson, HostName, InstanceName, InventoryPath, PatchFolders
from specops.cli.reach import reach, speaking, where

app = typer.Typer(help="Patches for SGLang releases.", no_args_is_help=True, rich_markup_mode=None)
PatchId = Annotated[str, typer.Argument(help="A patch's id.")]
FAILED = 16


@app.command("list")
def list_patches(folders: PatchFolders = None, as_json: AsJson = False) -> None:
    """Every patch, with the releases that it was made for."""
    with speaking(as_json) as output:
        output.show(
            "patches",
            [
                {"id": each.id, "summary": each.title, "gate": each.gate, "releases": list(each.releases)}
                for each in _patches(folders).values()
            ],
        )


@app.command("show")
def show_patch(
    patch: PatchId,
    release: Annotated[str | None, typer.Option("--release", help="Only this SGLang release.")] = None,
    folders: PatchFolders = None,
    as_json: AsJson = False,
) -> None:
    """What a patch changes, release by release, with its diffs."""
    from specops.config.patch import find_patch, for_release

    with speaking(as_json) as output:
        found = find_patch(_patches(folders), patch)
        chosen = {release: for_release(found, release)} if release else found.releases
        output.show(
            "patch",
            {
                "id": found.id,
                "title": found.title,
                "gate": found.gate or "none",
                "flags": dict(found.flags),
                "env": dict(found.env),
                "variants": [
                    {"release": name, "modules": list(each.modules), "files": _files(found, each)}
                    for name, each in chosen.items()
                ],
            },
        )


@app.command("verify")
def verify_patch(
    patch: PatchId,
    host: HostName = None,
    instance: InstanceName = None,
    inventory: InventoryPath = None,
    folders: PatchFolders = None,
    as_json: AsJson = False,
    accept_new: AcceptNew = False,
) -> int:
    """Whether a host's install takes a patch: every file is as the patch expects, and its diffs apply."""
    with reach(where(host, instance, inventory, as_json, accept_new)) as at:
        from specops.config.patch import find_patch, for_release, state_of
        from specops.engine.changes import Reader, patch_changes
        from specops.engine.preflight import require_install
        from specops.facts.host import read_host_facts

        known = _patches(folders)
        found = find_patch(known, patch)
        paths = sorted({file.path for each in found.releases.values() for file in each.files})
        facts = read_host_facts(at.connector, at.place.question(files=tuple(paths)))
        install = require_install(facts, at.place.host, at.place.python)
        for_release(found, install.version)
        states = state_of(found, install.version, install.files, known.values())
        good = all(each.state in {"pristine", "applied"} for each in states)
        if good:
            reader = Reader(connector=at.connector, place=at.place)
            patch_changes([found], install, facts.state.current, reader, at.place.host)
        files = [{"path": each.path, "state": each.state, "patch": each.patch} for each in states]
        at.output.show(
            "verification", {"patch": patch, "release": install.version, "ok": good, "files": files}
        )
        return 0 if good else FAILED


def _files(patch: Any, release: Any) -> list[dict[str, Any]]:
    return [
        {
            "path": file.path,
            "before": file.before,
            "after": file.after,
            "diff": (patch.folder / (file.diff or file.added)).read_text(encoding="utf-8"),
        }
        for file in release.files
    ]


def _patches(folders: list[str] | None) -> Any:
    from pathlib import Path

    from specops.config.patch import load_patches
    from specops.config.shipped import shipped

    return load_patches(shipped("patches"), *(Path(folder).expanduser() for folder in folders or ()))
