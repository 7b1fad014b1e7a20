"""Releases: the bytes that SGLang's own wheels have in the files that gates and patches touch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from specops.config.shipped import PACKAGE


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    version: str
    built: str
    """Date of the wheel, ISO."""
    files: Mapping[str, str]
    """Path below the `sglang` folder -> sha256 in the wheel; a few key files, not all."""


@cache
def load_releases() -> Mapping[str, Release]:
    """By version, oldest first: 0.5.5 to 0.5.23, read in the released wheels."""
    raw = json.loads((PACKAGE / "remote" / "data" / "releases.json").read_text())
    return {
        version: Release(version=version, built=entry["built"], files=entry["files"])
        for version, entry in raw.items()
    }


@cache
def compared_arguments() -> Mapping[str, str]:
    """Arguments that a ready server must report as they were asked for -> the first release with it."""
    raw = json.loads((PACKAGE / "remote" / "data" / "compared.json").read_text())
    return {entry["name"]: entry["since"] for entry in raw["compared"]}


def pristine_of(path: str, sha256: str) -> tuple[str, ...]:
    """The releases whose wheel has just these bytes at this path; empty where none is known to."""
    return tuple(release.version for release in load_releases().values() if release.files.get(path) == sha256)
