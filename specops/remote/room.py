"""Room on this machine: disks, shared memory, ports, and the tools that kernels are compiled with."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import members, procs

Json = Any
SHM = "/dev/shm"  # noqa: S108 it is looked at, not written to
TOOLS = ("ninja", "nvcc")
CUDA = "/usr/local/cuda/bin"


def read_room(folders: Iterable[str], ports: Iterable[int], python: str) -> dict[str, Json]:
    """{disks: {path: {free, total}}, shm: {free, total}, ports: {port: holder}, tools: {name: path}}."""
    bins = f"{Path(os.path.expanduser(python)).parent}:{CUDA}:/usr/local/bin:/usr/bin:/bin"
    return {
        "disks": {folder: space for folder in folders if (space := read_space(folder))},
        "shm": read_space(SHM),
        "ports": {str(port): _holder(port) for port in ports},
        "tools": {tool: shutil.which(tool, path=bins) for tool in TOOLS},
    }


def read_space(folder: str) -> dict[str, int] | None:
    """Bytes, where `folder` is or will be; None where nothing of its path is there."""
    path = Path(os.path.expanduser(folder))
    while not path.exists() and path != path.parent:
        path = path.parent
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return {"free": found.f_bavail * found.f_frsize, "total": found.f_blocks * found.f_frsize}


def _holder(port: int) -> dict[str, Json] | None:
    if procs.port_is_free(port):
        return None
    scan = procs.scan_processes()
    return {
        "pids": sorted(procs.port_holders(scan, port)),
        "line": members.describe_holder(scan, port),
    }
