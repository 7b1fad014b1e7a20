"""Who else uses an install: servers that have loaded its files, and ranks that a dead launcher left."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from . import members, procs, redact, state

Json = Any
DEFAULT_PORT = "30000"
"""SGLang's own, where its command line names none."""


def find_users(scan: dict[int, procs.Process], root: str, mine: set[int]) -> list[dict[str, Json]]:
    """Launchers of servers that run from the install at `root`, but for those of `mine`; any user's."""
    found = []
    for pid, process in sorted(scan.items()):
        argv = procs.read_argv(pid)
        if pid in mine or not members.is_sglang(argv) or argv[0].startswith("sglang::"):
            continue
        if process.ppid in scan and members.is_sglang(procs.read_argv(process.ppid)):
            continue  # a worker that has not renamed itself yet
        if root in _installs(argv[0], procs.read_environ(pid) or {}):
            port = members.find_option(argv, "--port") or DEFAULT_PORT
            words = redact.redact_argv(argv)
            found.append({"pid": pid, "user": state.user_name(process.uid), "port": port, "argv": words})
    return found


def find_ranks(scan: dict[int, procs.Process], root: str, mine: set[int]) -> list[dict[str, Json]]:
    """SGLang's workers from the install at `root` whose launcher is gone: they hold GPUs and serve nobody."""
    found = []
    for pid, process in sorted(scan.items()):
        title = procs.read_argv(pid)[:1]
        if pid in mine or not process.living or not title or not title[0].startswith("sglang::"):
            continue
        # Nothing less: the workers of SGLang's engine inside somebody's own program live below that program.
        reaper = scan.get(process.ppid)
        if process.ppid != 1 and (reaper is None or reaper.comm != "systemd"):
            continue
        # A worker that renamed itself has lost its environment; what it has loaded still tells.
        if f"{os.path.dirname(root)}/" in _maps(pid):
            user = state.user_name(process.uid)
            found.append(
                {"pid": pid, "start_ticks": process.start_ticks, "user": user, "title": title[0].strip()}
            )
    return found


def _maps(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:
        return ""


def _installs(python: str, environ: dict[str, str]) -> set[str]:
    """The packages that this interpreter may have imported: its own, and those on the module path."""
    near = Path(python).parent.parent.glob("lib/python3*/site-packages/sglang")
    named = (Path(part) / "sglang" for part in environ.get("PYTHONPATH", "").split(":") if part)
    return {os.path.realpath(folder) for folder in (*near, *named)}
