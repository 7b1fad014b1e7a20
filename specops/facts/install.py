"""One SGLang install: where it is, which release, and the bytes of the files that a plan cares about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Install:
    python: str
    root: str
    """The `sglang` package folder."""
    version: str
    torch: str | None
    writable: bool
    files: Mapping[str, str | None]
    """Path relative to `root` -> sha256, None where there is no such file."""


def parse_install(raw: dict[str, Any] | None) -> Install | None:
    if raw is None:
        return None
    return Install(
        python=str(raw["python"]),
        root=str(raw["root"]),
        version=str(raw["version"]),
        torch=raw.get("torch"),
        writable=bool(raw.get("writable")),
        files=dict(raw.get("files") or {}),
    )
