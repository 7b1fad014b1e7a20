"""What a failed deploy left to look at, from the bundle that its host sends."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specops.errors import SpecopsError

Json = Any
PART_CAP = 4 << 20
"""Bytes read of one part: it comes from elsewhere, and a tar can be made to unpack into anything."""
LOG_ENDS = 12
"""Lines of the log's head and tail that are shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    name: str
    size: int
    data: bytes


def open_bundle(bundle: bytes) -> tuple[Part, ...]:
    """Nothing is unpacked to disk. Raises SpecopsError for what is no tar."""
    try:
        with tarfile.open(fileobj=io.BytesIO(bundle)) as archive:
            files = [member for member in archive.getmembers() if member.isfile()]
            return tuple(_read(archive, member) for member in files)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise SpecopsError(f"the host's evidence is no tar: {error}") from error


def _read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Part:
    file = archive.extractfile(member)
    data = file.read(PART_CAP) if file else b""
    return Part(name=member.name, size=member.size, data=data)


def describe_bundle(deploy: str, bundle: bytes) -> dict[str, Json]:
    """One document of the whole: {deploy, files, cause, root, ranks, log, processes, ports, gpus, versions,
    index}; a part that the host could not give is None."""
    parts = open_bundle(bundle)
    known = {part.name.rpartition("/")[2]: part.data for part in parts}
    index = _parse(known, "index.json") or {}
    return {
        "deploy": deploy,
        "files": [{"name": part.name, "size": part.size} for part in parts],
        "missing": _missing(index.get("files") or {}),
        "cause": _parse(known, "cause.json"),
        "root": _parse(known, "root.json"),
        "ranks": _parse(known, "ranks.json"),
        "log": _ends(known.get("server.log")),
        "processes": _parse(known, "processes.json"),
        "ports": _parse(known, "ports.json"),
        "gpus": _parse(known, "gpus.json"),
        "versions": _parse(known, "versions.json"),
    }


def _parse(parts: Mapping[str, bytes], name: str) -> Json:
    try:
        return json.loads(parts[name])
    except (KeyError, ValueError):
        return None


def _missing(files: Mapping[str, Json]) -> list[str]:
    return [f"{name}: {said}" for name, said in files.items() if said not in ("ok", "nothing to see")]


def _ends(log: bytes | None) -> dict[str, list[str]] | None:
    if log is None:
        return None
    lines = log.decode("utf-8", "replace").splitlines()
    return {"head": lines[:LOG_ENDS], "tail": lines[LOG_ENDS:][-LOG_ENDS:]}
