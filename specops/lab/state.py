"""The lab's memory: one JSON file in its folder says what is installed and what runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specops.config.shipped import lab_home

FILE = "lab.json"
COOKIE = "SPECOPS_LAB"
"""In the environment of every process of a lab, and of the servers that deploys start in it: its folder."""

OnProgress = Callable[[str, float], None]
"""Called with a stage's name and how much of it is done, 0 to 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LabState:
    """A lab that was brought up. Paths are absolute."""

    name: str
    folder: str
    release: str
    """Of SGLang."""
    python: str
    """Interpreter of the SGLang install."""
    package: str
    """The install's `sglang` folder."""
    model: str
    draft: str
    port: int
    """Of the SGLang server."""
    ssh_port: int
    ssh_user: str
    ssh_kind: str
    """`openssh` or `python`."""
    identity_file: str
    known_hosts: str
    state_dir: str
    """Where specops keeps its journals on this "host"."""
    server_log: str

    @property
    def inventory(self) -> Path:
        return Path(self.folder) / "inventory.yaml"


def folder_of(name: str) -> Path:
    """The lab called `lab` is the user's one lab; others live beside it, for tests."""
    home = lab_home()
    return home if name == "lab" else home.with_name(f"{home.name}-{name}")


def read_state(name: str) -> LabState | None:
    try:
        raw: dict[str, Any] = json.loads((folder_of(name) / FILE).read_text())
        return LabState(**raw)
    except (OSError, ValueError, TypeError):
        return None


def write_state(state: LabState) -> None:
    path = Path(state.folder) / FILE
    temp = path.with_suffix(f".{os.getpid()}")
    temp.write_text(json.dumps(asdict(state), indent=1))
    temp.replace(path)


def forget_state(name: str) -> None:
    (folder_of(name) / FILE).unlink(missing_ok=True)
