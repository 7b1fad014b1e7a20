"""Some files of SGLang's wheels, of any release; the wheels are those of the lab's cache."""

from __future__ import annotations

from pathlib import Path

from specops.lab.wheels import open_wheel


def unpack(release: str, into: Path, *paths: str) -> Path:
    """Some files (below the package) of a wheel as `into/sglang/…`; the package's folder."""
    with open_wheel(release) as wheel:
        for path in paths:
            wheel.extract(f"sglang/{path}", into)
    return into / "sglang"
