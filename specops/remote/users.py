"""Who else uses an install: servers that have loaded its files keep them until they start again."""

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


def _installs(python: str, environ: dict[str, str]) -> set[str]:
    """The packages that this interpreter may have imported: its own, and those on the module path."""
    near = Path(python).parent.parent.glob("lib/python3*/site-packages/sglang")
    named = (Path(part) / "sglang" for part in environ.get("PYTHONPATH", "").split(":") if part)
    return {os.path.realpath(folder) for folder in (*near, *named)}
