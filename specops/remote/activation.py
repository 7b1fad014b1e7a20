"""Activation by copy: the server is launched from a copy of the package, and the install keeps its bytes.

The copy lies in the deploy's folder, so that it lives as long as the deploy can be gone back to. Its
`sglang/__init__.py` has some lines more than the install's: whichever process loads it leaves a note.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from . import members, procs, state
from .context import Context, Op, OpFailed
from .launch import read_note
from .rehearse import copy_package
from .store import digest_file

Json = Any
COPY = "copy"
LOADED = "loaded"
"""In the deploy's folder: a file `<pid>-<start ticks>` for each process that has loaded the copy."""
UNCHANGED = "nothing was changed; the old server was not touched"
NOTE = """

# Added by specops to this copy, which a server is launched from: each process that loads it says so.
def _specops_note(folder):
    import os

    try:
        with open("/proc/self/stat") as stat:
            ticks = stat.read().rpartition(")")[2].split()[19]
        with open(os.path.join(folder, "%d-%s" % (os.getpid(), ticks)), "w") as note:
            note.write(os.path.realpath(__file__))
    except OSError:
        pass


_specops_note({folder!r})
del _specops_note
"""


def make(ctx: Context, args: dict[str, Json]) -> dict[str, Json]:
    """`files`: [{path (absolute, in the install), sha256 (in the store) or null}] over the copy."""
    remove(ctx, args)
    folder, loaded = ctx.deploy_dir / COPY, ctx.deploy_dir / LOADED
    with state.naming_io_errors(f"copy the package to {folder}", UNCHANGED):
        loaded.mkdir(mode=0o700)
        root = copy_package(ctx, folder, args["files"])
        first = root / "__init__.py"
        text = first.read_bytes() + NOTE.replace("{folder!r}", repr(str(loaded))).encode()
        first.unlink()
        first.write_bytes(text)
    _require_files(ctx, args["files"])
    return {"copy": str(root)}


def remove(ctx: Context, args: dict[str, Json]) -> dict[str, Json]:
    for name in (COPY, LOADED):
        shutil.rmtree(ctx.deploy_dir / name, ignore_errors=True)
    return {}


def prove(ctx: Context, args: dict[str, Json]) -> dict[str, Json]:
    """The launcher and every worker of the server have loaded the copy; its changed files are as staged.

    Raises `not_the_copy`.
    """
    _require_files(ctx, args["files"])
    note = read_note(ctx, str(args["cookie"]))
    scan = procs.scan_processes()
    pid, ticks = int(note.get("pid") or 0), int(note.get("start_ticks") or 0)
    mine = members.find_members(scan, pid=pid, start_ticks=ticks, cookie=str(args["cookie"]))
    want = os.path.realpath(ctx.deploy_dir / COPY / "sglang" / "__init__.py")
    ranks, strangers = [], []
    for member in sorted(mine):
        title = (procs.read_argv(member) or [""])[0]
        if member != pid and not title.startswith("sglang::"):
            continue
        found = _loaded(ctx, scan, member, mine)
        ranks.append({"pid": member, "title": "launcher" if member == pid else title, "file": found})
        if found != want:
            strangers.append(f"{members.describe_process(member)} ({found or 'no word of it'})")
    if strangers or not ranks:
        raise OpFailed(
            "not_the_copy",
            f"not every process of the server has loaded {want}: {'; '.join(strangers) or 'none was found'}",
            detail=ranks,
            next_command="specops logs; look for another sglang in the server's folder and environment",
        )
    return {"copy": want, "ranks": ranks}


def _loaded(ctx: Context, scan: dict[int, procs.Process], pid: int, mine: set[int]) -> str:
    """What the process, or the one that it was forked from, has noted."""
    while pid in mine and pid in scan:
        file = ctx.deploy_dir / LOADED / f"{pid}-{scan[pid].start_ticks}"
        if file.exists():
            return file.read_text()
        above = scan[pid].ppid
        if _image(pid) != _image(above):
            break
        pid = above
    return ""


def _image(pid: int) -> tuple[str, ...]:
    """Where the kernel has put its code, data and stack: kept by a fork, drawn anew by an exec."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return (str(pid),)
    places = (
        fields[23],
        fields[25],
        *fields[42:45],
    )  # code, stack, data, brk
    return places if "0" not in places[:2] else (str(pid),)


def _require_files(ctx: Context, files: list[dict[str, Json]]) -> None:
    install = Path(ctx.instance["root"])
    for file in files:
        path = ctx.deploy_dir / COPY / "sglang" / Path(str(file["path"])).relative_to(install)
        if digest_file(path) != file["sha256"]:
            raise OpFailed("damaged", f"{path} does not hold what was staged for it", host_state=UNCHANGED)


OPS: dict[str, Op] = {"copy.make": make, "copy.remove": remove, "copy.prove": prove}
