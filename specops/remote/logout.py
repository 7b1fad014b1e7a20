"""What happens to a user's processes when its last session ends, where systemd-logind decides that."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any

Json = Any
FOLDERS = ("usr/lib/systemd", "run/systemd", "etc/systemd")
"""Later ones win; the administrator's file comes last."""
SETTING = re.compile(r"^\s*(#?)\s*(KillUserProcesses|KillExcludeUsers|KillOnlyUsers)\s*=\s*(.*?)\s*$", re.M)


def read_logout(user: str, root: Path = Path("/")) -> dict[str, Json]:
    """{systemd, kills, linger}: whether systemd runs this machine, whether logind ends what a session of
    `user` left running, and whether the user's own manager stays without a session."""
    running = (root / "run/systemd/system").is_dir()
    found = _settings(root)
    spared = user in found.get("KillExcludeUsers", "root").split()
    only = found.get("KillOnlyUsers", "").split()
    kills = found.get("KillUserProcesses", "no").lower() in ("yes", "true", "on", "1")
    return {
        "systemd": running,
        "kills": running and kills and not spared and (not only or user in only),
        "linger": (root / "var/lib/systemd/linger" / user).exists(),
    }


def _settings(root: Path) -> dict[str, str]:
    """What is set; else the default that the shipped file names in a comment, for it differs by build."""
    defaults: dict[str, str] = {}
    found: dict[str, str] = {}
    for folder in FOLDERS:
        main = root / folder / "logind.conf"
        for path in (main, *sorted((root / folder / "logind.conf.d").glob("*.conf"))):
            with contextlib.suppress(OSError):
                for comment, name, value in SETTING.findall(path.read_text(errors="replace")):
                    (defaults if comment else found)[name] = value
    return {**defaults, **found}


def scope_argv(scope: str, cookie: str) -> list[str]:
    """Words in front of a command that put it into a scope of its own: it stays in place, with its pid,
    its log and its environment, and no session's end reaches it."""
    mine = ["--user"] if scope == "user" else []
    return ["systemd-run", *mine, "--scope", "--quiet", "--collect", f"--unit=specops-{cookie}", "--"]


def runtime_dir() -> str:
    """Where a user's own manager is reached."""
    return f"/run/user/{os.geteuid()}"
