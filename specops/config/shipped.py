"""Where patches/, playbooks/ and the example inventory are: in the installed package or the checkout."""

from __future__ import annotations

import os
from pathlib import Path

from specops.config.source import nearest
from specops.errors import UsageError

PACKAGE = Path(__file__).resolve().parents[1]


def shipped(name: str) -> Path:
    """The shipped file or folder: `patches`, `playbooks` or `inventory.yaml`."""
    installed = PACKAGE / "data" / name
    return installed if installed.exists() else PACKAGE.parent / name


def settings_folder() -> Path:
    """`~/.config/specops` of whoever types."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "specops"


def data_folder() -> Path:
    """`~/.local/share/specops` of whoever types."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "specops"


def lab_home() -> Path:
    """The lab's own folder; it may not exist."""
    named = os.environ.get("SPECOPS_LAB_HOME")
    return Path(named).expanduser() if named else data_folder() / "lab"


def local_patches() -> Path:
    """Where `patch rebase` and `patch new` put theirs; it may not exist."""
    return data_folder() / "patches"


def find_inventory(path: str | Path | None) -> Path:
    """`--inventory`, $SPECOPS_INVENTORY, ./inventory.yaml, ~/.config/specops/inventory.yaml, the example."""
    named = path or os.environ.get("SPECOPS_INVENTORY")
    if named:
        return Path(named).expanduser()
    for candidate in (Path("inventory.yaml"), settings_folder() / "inventory.yaml"):
        if candidate.is_file():
            return candidate
    return shipped("inventory.yaml")


def playbook_folders() -> tuple[Path, ...]:
    return Path("playbooks"), settings_folder() / "playbooks", shipped("playbooks")


def find_playbook(name_or_path: str) -> Path:
    """A path (it holds a slash or ends in .yaml), or a name looked up in `playbook_folders`."""
    if "/" in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        return Path(name_or_path).expanduser()
    for folder in playbook_folders():
        if (folder / f"{name_or_path}.yaml").is_file():
            return folder / f"{name_or_path}.yaml"
    known = sorted({path.stem for folder in playbook_folders() for path in folder.glob("*.yaml")})
    raise UsageError(f"no playbook is called {name_or_path!r}{nearest(name_or_path, known)}")
