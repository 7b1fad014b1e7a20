"""SGLang's released wheels, downloaded once and unpacked, without anything that they require."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from specops.errors import SpecopsError

READY = "specops-lab.json"
"""Written into a folder once all of it is there."""


class LabError(SpecopsError):
    """The lab could not be made or its server did not come up; `host_state` is the end of the log."""


def default_home() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "specops" / "older-labs"


def wheel_folder() -> Path:
    return default_home().with_name("wheels")


def open_wheel(release: str) -> zipfile.ZipFile:
    """The wheel of `release` for this Python; pip fetches it once. Raises LabError."""
    folder = wheel_folder()
    if not find_wheel(folder, release):
        run(
            [
                sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps",
                "--only-binary=:all:", "--dest", str(folder), f"sglang=={release}",
            ]
        )  # fmt: skip
    found = find_wheel(folder, release)
    if found is None:
        raise LabError(f"pip left no wheel of SGLang {release} in {folder}")
    return zipfile.ZipFile(found)


def find_wheel(folder: Path, release: str) -> Path | None:
    return next(iter(sorted(folder.glob(f"sglang-{release}-*.whl"))), None)


def unpack_release(release: str, home: Path) -> Path:
    """The folder below `home` that holds this release's `sglang`. Raises LabError."""
    tree = home / f"sglang-{release}"
    if not (tree / READY).is_file():
        shutil.rmtree(tree, ignore_errors=True)
        with open_wheel(release) as wheel:
            wheel.extractall(tree)
        (tree / READY).write_text(f'{{"sglang": "{release}"}}\n', encoding="utf-8")
    return tree


def run(argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise LabError(f"{' '.join(argv[:6])} ... ended with {done.returncode}", host_state=tail)
