"""A lab's install as its wheel made it, whatever an interrupted run left there."""

from __future__ import annotations

import base64
import csv
import hashlib
import shutil
from pathlib import Path

from specops.lab.lab import LabState
from specops.lab.releases import make_release


def changed_files(package: Path) -> list[str]:
    """Files of an install's `sglang` folder that are not its wheel's: changed, gone or added."""
    (record,) = package.parent.glob("sglang-*.dist-info/RECORD")
    with record.open(newline="") as lines:
        known = {name: expected for name, expected, _size in csv.reader(lines) if name.startswith("sglang/")}
    changed = [
        name for name, expected in known.items() if expected and _digest(package.parent / name) != expected
    ]
    found = {str(path.relative_to(package.parent)) for path in package.rglob("*.py")}
    return sorted({*changed, *(found - known.keys())})


def _digest(path: Path) -> str:
    content = path.read_bytes() if path.is_file() else b""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def renew(lab: LabState) -> list[str]:
    """Make the install anew where it has changed; what had. Nothing of the lab may be serving from it."""
    package, folder = Path(lab.package), Path(lab.python).parents[1]
    changed = changed_files(package)
    if changed:
        shutil.rmtree(folder)
        made = make_release(folder.parents[1], lab.release, None, lambda part: None)
        assert made.package == package, made
        assert changed_files(package) == []
    return changed
