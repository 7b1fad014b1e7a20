"""Operations on files: check, backup, stage, swap, restore (ARCHITECTURE, Plan)."""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import replace, state
from .context import Context, Op, OpFailed
from .store import Store, digest_file

Json = Any
DIFF_BYTES = 512 * 1024
DIFF_LINES = 200
UNCHANGED = "nothing was changed"
FOLDERS = "folders.json"
"""In the deploy's folder: the folders that a swap creates, written before the first of them."""


def check(ctx: Context, args: dict[str, Json]) -> dict[str, Json]:
    wanted = {_target(ctx, file["path"]): file["sha256"] for file in args["files"]}
    refuse_drifted(ctx, wanted, UNCHANGED)
    return {"checked": len(wanted)}


def backup(ctx: Context, args: dict[str, Json]) -> dict[str, Json]:
    store = Store(ctx.store_dir)
    size = 0
    ours = _written_by_deploys(ctx)
    for file in args["files"]:
        target = _target(ctx, file["path"])
        with state.naming_io_errors(f"back up {target}", UNCHANGED):
            try:
                data = target.read_bytes()
            except FileNotFoundError:
                data = None
            if data is None or digest_file(target) != file["sha256"]:
                refuse_drifted(ctx, {target: file["sha256"]}, UNCHANGED)
            else:
                store.put(data, file["sha256"])
                if file["sha256"] not in ours:
                    store.note_backup(file["sha256"], str(target), ctx.deploy_id)
                size += len(data)
    return {"stored": len(args["files"]), "bytes": size}


def _written_by_deploys(ctx: Context) -> set[str]:
    """Bytes that deploys put into the install: kept while a deploy that `clean` keeps names them. All
    others are somebody's own, and kept for good."""
    found: set[str] = set()
    for folder in ctx.deploy_dir.parent.iterdir():
        plan = state.read_json(folder / "plan.json")
        if isinstance(plan, dict) and plan.get("kind") == "deploy":
            swaps = [s["do"]["args"] for s in plan.get("steps") or () if s["do"]["op"] == "files.swap"]
            found |= {str(file["after"]) for args in swaps for file in args["files"] if file["after"]}
    return found


def stage(ctx: Context, args: dict[str, Json]) -> dict[str, Json]:
    store = Store(ctx.store_dir)
    size = 0
    for file in args["files"]:
        digest = str(file["sha256"])
        blob = ctx.deploy_dir / "blobs" / digest
        with state.naming_io_errors(f"stage {file['path']}", UNCHANGED):
            data = blob.read_bytes() if blob.exists() else store.get(digest)
            if file.get("python"):
                compile_in_memory(data, str(file["path"]))
            store.put(data, digest)
            blob.unlink(missing_ok=True)
        size += len(data)
    return {"staged": len(args["files"]), "bytes": size}


def swap(ctx: Context, args: dict[str, Json]) -> dict[str, Json]:
    """All are compared before the first is written, and each again right before its own rename."""
    store = Store(ctx.store_dir)
    changes = [(_target(ctx, f["path"]), f["before"], f["after"]) for f in args["files"]]
    todo = [change for change in changes if replace.digest(change[0]) != change[2]]
    refuse_drifted(ctx, {target: before for target, before, _ in todo}, "no file was changed by this step")
    for _, before, _ in todo:
        if before is not None:
            store.get(before)  # what cannot be put back is not taken away
    new = {after: store.get(after) for _, _, after in todo if after is not None}
    _note_folders(ctx, [target.parent for target, _, after in todo if after is not None])
    for target, before, after in todo:
        with state.naming_io_errors(f"write {target}", "the files changed before it are put back next"):
            refuse_drifted(ctx, {target: before}, "the files changed before it are put back next")
            if after is None:
                replace.remove(target)
            else:
                for folder in replace.make_folders(target.parent):
                    folder.mkdir(mode=0o755)
                replace.write(target, new[after], ctx.deploy_id)
        if replace.digest(target) != after:
            raise OpFailed("damaged", f"{target} does not hold what was just written to it")
    if any(after is None for _, _, after in todo):
        _remove_folders(ctx)
    return {"written": len(todo), "already": len(changes) - len(todo)}


def restore(ctx: Context, args: dict[str, Json]) -> dict[str, Json]:
    """Tries every file, last first; the error names all that could not be put back.

    A file that somebody changed meanwhile is left as it is, unless `force` says otherwise.
    Its bytes are kept in the store either way.
    """
    store = Store(ctx.store_dir)
    restored: list[str] = []
    force = bool(args.get("force"))
    errors: list[OpFailed] = []
    for file in reversed(args["files"]):
        target = _target(ctx, file["path"])
        try:
            with state.naming_io_errors(f"put {target} back", "it holds what the deploy wrote"):
                if _restore_one(ctx, store, target, file["before"], file["after"], force=force):
                    restored.append(str(target))
        except OpFailed as error:
            errors.append(error)
    _remove_folders(ctx)
    if errors:
        first = next((error for error in errors if error.code == "drifted"), errors[0])
        raise OpFailed(
            first.code,
            "; ".join(error.message for error in errors),
            detail=[error.as_json() for error in errors],
            host_state=f"{len(errors)} of {len(args['files'])} files are not as they were before",
            next_command=first.next_command or "specops recover",
        )
    return {"restored": len(restored), "already": len(args["files"]) - len(restored)}


def _restore_one(
    ctx: Context, store: Store, target: Path, before: str | None, after: str | None, *, force: bool
) -> bool:
    """True when bytes had to be written or removed."""
    replace.temp_of(target, ctx.deploy_id).unlink(missing_ok=True)
    found = replace.digest(target)
    if found == before:
        # Killed between its rename and this: what was compiled from the other bytes may still lie there.
        with contextlib.suppress(OSError):
            replace.drop_bytecode(target)
        return False
    if found is not None and found != after:
        if found in _befores(ctx, target):
            # An earlier settling went further back than its journal could say: the disk was full.
            return False
        kept = _keep(ctx, store, target, found, needed=force)
        if not force:
            raise OpFailed(
                "drifted",
                f"{target} was changed by somebody else during the deploy, so it is left alone; {kept}",
                detail={"path": str(target), "found": found, "before": before, "after": after},
                host_state=f"{target} holds what somebody else wrote",
                next_command="specops recover --force",
            )
    if before is None:
        replace.remove(target)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        replace.write(target, store.get(before), ctx.deploy_id)
    if replace.digest(target) != before:
        raise OpFailed("damaged", f"{target} does not hold what was just put back")
    return True


def _keep(ctx: Context, store: Store, target: Path, found: str, *, needed: bool) -> str:
    """Put bytes that are nobody's but a stranger's into the store, for good. Says where they are.

    Raises only where they are `needed`, because the file is about to be written over.
    """
    try:
        store.put(target.read_bytes(), found)
        store.note_backup(found, str(target), ctx.deploy_id)
    except (OSError, OpFailed) as error:
        if needed:
            raise
        return f"its bytes are only there: they could not be kept in the store too ({error})"
    return f"its bytes are kept as {store.path(found)}"


def _befores(ctx: Context, target: Path) -> set[str | None]:
    """Every state that this deploy's own swaps found this file in."""
    plan = state.read_json(ctx.deploy_dir / "plan.json") or {}
    swaps = [step["do"]["args"] for step in plan.get("steps") or () if step["do"]["op"] == "files.swap"]
    files = [file for args in swaps for file in args["files"]]
    return {file["before"] for file in files if _target(ctx, file["path"]) == target}


def refuse_drifted(ctx: Context, wanted: dict[Path, str | None], host_state: str) -> None:
    """Raises `drifted` unless each file has just these bytes (None: is absent)."""
    found: dict[Path, str | None] = {}
    for path, expected in wanted.items():
        with state.naming_io_errors(f"read {path}", host_state):
            now = replace.digest(path)
        if now != expected:
            found[path] = now
    if not found:
        return
    lines = [f"{path}: {_short(now)}, expected {_short(wanted[path])}" for path, now in found.items()]
    raise OpFailed(
        "drifted",
        "files are not what the plan was made from: " + "; ".join(lines),
        detail=[
            {"path": str(p), "found": now, "expected": wanted[p], "diff": diff(ctx.store_dir, p, wanted[p])}
            for p, now in found.items()
        ],
        host_state=host_state,
        next_command="specops plan",
    )


def diff(store_dir: Path, path: Path, expected: str | None) -> str:
    """Unified, from the expected bytes to those found; "" where one of them is not at hand or not text."""
    if expected is None:
        return ""
    try:
        old = (store_dir / expected).read_bytes()
        new = path.read_bytes() if path.exists() else b""
        if len(old) + len(new) > DIFF_BYTES:
            return ""
        lines = difflib.unified_diff(
            old.decode().splitlines(), new.decode().splitlines(), "expected", str(path), lineterm=""
        )
    except (OSError, UnicodeDecodeError):
        return ""
    return "\n".join(list(lines)[:DIFF_LINES])


def compile_in_memory(data: bytes, path: str) -> None:
    """Raises `does_not_compile` with file and line. No bytecode is written."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(data, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 0
        raise OpFailed(
            "does_not_compile",
            f"{path}:{line}: {error}",
            host_state=UNCHANGED,
            next_command="specops patch verify",
        ) from error


def _target(ctx: Context, path: str) -> Path:
    full = state.expand(path, deploy_dir=ctx.deploy_dir, machine=ctx.store_dir.parent)
    if not os.path.isabs(full):
        raise OpFailed("usage", f"not an absolute path: {path!r}", host_state=UNCHANGED)
    return replace.resolve(full)


def _short(digest: str | None) -> str:
    return "absent" if digest is None else digest[:12]


def _note_folders(ctx: Context, folders: list[Path]) -> None:
    """The undo must know which folders are ours before there is the first of them."""
    missing = list(dict.fromkeys(str(path) for folder in folders for path in replace.make_folders(folder)))
    if missing:
        known = state.read_json(ctx.deploy_dir / FOLDERS) or []
        state.write_private(ctx.deploy_dir / FOLDERS, json.dumps([*known, *missing]).encode())


def _remove_folders(ctx: Context) -> None:
    """Those that this or an earlier deploy created, innermost first; one that holds anything stays."""
    notes = [state.read_json(path) or [] for path in ctx.deploy_dir.parent.glob(f"*/{FOLDERS}")]
    for folder in _deepest_first([folder for note in notes for folder in note]):
        with contextlib.suppress(OSError):
            (folder / "__pycache__").rmdir()
        with contextlib.suppress(OSError):
            folder.rmdir()


def _deepest_first(folders: list[str]) -> Iterator[Path]:
    yield from (Path(folder) for folder in sorted(folders, key=len, reverse=True))


OPS: dict[str, Op] = {
    "files.check": check,
    "files.backup": backup,
    "files.stage": stage,
    "files.swap": swap,
    "files.restore": restore,
}
