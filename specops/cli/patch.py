"""Commands about patches: what there is, what each changes, and whether a host's install takes it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from specops.cli.options import (
    AcceptNew,
    AsJson,
    HostName,
    InstanceName,
    InventoryPath,
    PatchFolders,
    PlaybookName,
    Settings,
    Yes,
)
from specops.cli.reach import list_overrides, reach, reach_with_playbook, speaking, where

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
    every: Annotated[
        bool, typer.Option("--all", help="No host: against the wheels of every release, downloaded once.")
    ] = False,
    release: Annotated[
        list[str] | None, typer.Option("--release", help="With --all: only this one. Repeatable.")
    ] = None,
    as_json: AsJson = False,
    accept_new: AcceptNew = False,
) -> int:
    """Whether a host's install takes a patch: every file is as the patch expects, and its diffs apply."""
    if every:
        from specops.cli.matrix import verify_all

        return verify_all(patch, folders=folders, releases=release, as_json=as_json)
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


@app.command("rebase")
def rebase_patch(
    patch: Annotated[str, typer.Argument(help="Whose hunks.")] = "batch-gate",
    host: HostName = None,
    instance: InstanceName = None,
    inventory: InventoryPath = None,
    folders: PatchFolders = None,
    as_json: AsJson = False,
    accept_new: AcceptNew = False,
) -> None:
    """A patch of your own for an install that no patch was made for."""
    with reach(where(host, instance, inventory, as_json, accept_new)) as at:
        from specops.config.patch import find_patch
        from specops.config.shipped import local_patches
        from specops.engine.rebase import rebase_patch as rebase

        found = find_patch(_patches(folders), patch)
        at.output.show("rebase", rebase(at.place, at.connector, found, local_patches()).as_json())


@app.command("new")
def new_patch(
    patch: PatchId,
    before: Annotated[str, typer.Option("--before", metavar="TREE", help="A sglang folder as it is.")],
    after: Annotated[str, typer.Option("--after", metavar="TREE", help="The same, changed.")],
    title: Annotated[str, typer.Option("--title", help="One line.")] = "",
    release: Annotated[str | None, typer.Option("--release", help="Default: what the tree says.")] = None,
    gate: Annotated[bool, typer.Option("--gate", help="It brings a batch gate.")] = False,
    like: Annotated[
        str | None,
        typer.Option(
            "--like", metavar="PATCH", help="It is this patch, merged by hand: its gate, flags and refusals."
        ),
    ] = None,
    into: Annotated[
        str | None, typer.Option("--into", metavar="FOLDER", help="Default: your own patches.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """A patch from two trees."""
    with speaking(as_json) as output:
        from pathlib import Path

        from specops.config.patch import find_patch
        from specops.config.shipped import local_patches
        from specops.steps.patch_trees import patch_from_trees

        made = patch_from_trees(
            patch,
            Path(before).expanduser(),
            Path(after).expanduser(),
            Path(into).expanduser() if into else local_patches(),
            title=title,
            release=release,
            gate=gate,
            like=find_patch(_patches(None), like) if like else None,
        )
        (version, content), *_ = made.releases.items()
        output.show(
            "new patch",
            {
                "id": made.id,
                "release": version,
                "folder": str(made.folder),
                "files": [f"{file.path} ({'added' if file.added else 'changed'})" for file in content.files],
            },
        )


@app.command("drop")
def drop_patch(
    host: HostName = None,
    instance: InstanceName = None,
    inventory: InventoryPath = None,
    playbook: PlaybookName = None,
    settings: Settings = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    accept_new: AcceptNew = False,
) -> Any:
    """Back to the install's own bytes; serve without a patch."""
    asked = where(host, instance, inventory, as_json, accept_new)
    with reach_with_playbook(asked, playbook, list_overrides(settings)) as at:
        from specops.cli.change import show_and_run, unchanged
        from specops.cli.wishes import make_wish
        from specops.engine.planner import Nothing, make_plan

        wish = make_wish(
            at.need_playbook(), ids=None, folders=None, sweep=False, levels=None, prompts=None, drop=True
        )
        made = make_plan(at.place, wish, at.connector)
        if isinstance(made, Nothing):
            return unchanged(at, made)
        return show_and_run(at, made, dry_run=dry_run, yes=yes)


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
    from specops.config.patch import known_patches

    return known_patches(folders)
