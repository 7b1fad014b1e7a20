"""SGLang's wheels as files to read, of any release: pip fetches each once, nothing is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path


def open_wheel(release: str) -> zipfile.ZipFile:
    """The wheel of `release` for this Python."""
    cache = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(cache) if cache else Path.home() / ".cache") / "specops" / "wheels"
    if not find_wheel(folder, release):
        wanted = ["--no-deps", "--only-binary", ":all:", "-d", str(folder), f"sglang=={release}"]
        pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, *wanted], check=True)
    found = find_wheel(folder, release)
    if found is None:
        raise FileNotFoundError(f"pip left no wheel of SGLang {release} in {folder}")
    return zipfile.ZipFile(found)


def find_wheel(folder: Path, release: str) -> Path | None:
    return next(iter(sorted(folder.glob(f"sglang-{release}-*.whl"))), None)


def unpack(release: str, into: Path, *paths: str) -> Path:
    """Some files (below the package) of a wheel as `into/sglang/…`; the package's folder."""
    with open_wheel(release) as wheel:
        for path in paths:
            wheel.extract(f"sglang/{path}", into)
    return into / "sglang"
