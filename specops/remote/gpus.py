"""GPUs as nvidia-smi shows them. A machine without it has none, which is a fact and not an error."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

Json = Any
QUERY_S = 10.0
MIB = 1024 * 1024
STUCK: list[subprocess.Popen[str]] = []


def find_smi() -> str | None:
    path = shutil.which("nvidia-smi", path="/usr/bin:/usr/local/bin:/usr/local/nvidia/bin:/usr/sbin:/bin")
    return path or shutil.which("nvidia-smi")


def query(*words: str) -> list[list[str]] | None:
    """Rows of a CSV query; None where there is no nvidia-smi or it fails."""
    out = ask(*words, "--format=csv,noheader,nounits")
    if out is None:
        return None
    return [[cell.strip() for cell in line.split(",")] for line in out.splitlines() if line.strip()]


def ask(*words: str) -> str | None:
    """What nvidia-smi prints; None where there is none, or it fails or hangs."""
    smi = find_smi()
    if smi is None:
        return None
    try:
        child = subprocess.Popen(
            [smi, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        out, _ = child.communicate(timeout=QUERY_S)
    except OSError:
        return None
    except subprocess.TimeoutExpired:
        child.kill()
        STUCK.append(child)  # one that hangs in its driver does not even die: nobody waits for it
        return None
    return out if child.returncode == 0 else None


def read_gpus() -> Json:
    """`"none"` or `[{index, name, uuid, mem_total, mem_free}]`, memory in bytes."""
    rows = query("--query-gpu=index,name,uuid,memory.total,memory.free")
    if not rows:
        return "none"
    return [
        {
            "index": int(row[0]),
            "name": row[1],
            "uuid": row[2],
            "mem_total": _bytes(row[3]),
            "mem_free": _bytes(row[4]),
        }
        for row in rows
        if len(row) == 5 and row[0].isdigit()
    ]


def with_held(found: Json, pids: set[int]) -> Json:
    """The GPUs, each with `mem_held`: what these processes hold on it and will give back when they end."""
    if not isinstance(found, list):
        return found
    held: dict[str, int] = {}
    for uuid, pid, size in read_apps() if pids else ():
        if pid in pids:
            held[uuid] = held.get(uuid, 0) + size
    return [{**gpu, "mem_held": held.get(gpu["uuid"], 0)} for gpu in found]


def read_apps() -> list[tuple[str, int, int]]:
    """(uuid of the GPU, pid, bytes) of every process that computes; empty without GPUs."""
    rows = query("--query-compute-apps=gpu_uuid,pid,used_memory") or ()
    return [(row[0], int(row[1]), _bytes(row[2])) for row in rows if len(row) == 3 and row[1].isdigit()]


def read_driver() -> str | None:
    rows = query("--query-gpu=driver_version")
    return rows[0][0] if rows and rows[0] else None


def read_stack() -> dict[str, Json] | None:
    """{version, cuda, capability} of the driver and of the GPU of the oldest generation: `cuda` is the
    highest that it runs; None without a GPU. Creates no context and takes no memory."""
    rows = query("--query-gpu=driver_version,compute_cap")
    if not rows:
        return None
    told = ask("-q", "-d", "COMPUTE") or ""
    cuda = re.search(r"^CUDA Version\s*:\s*(\d+\.\d+)", told, re.M)
    known = [row[1] for row in rows if len(row) > 1 and re.fullmatch(r"\d+\.\d+", row[1])]
    return {
        "version": rows[0][0],
        "cuda": cuda.group(1) if cuda else None,
        "capability": min(known, key=lambda text: tuple(map(int, text.split("."))), default=None),
    }


def _bytes(mib: str) -> int:
    return int(float(mib)) * MIB if mib.replace(".", "", 1).isdigit() else 0


def read_users() -> dict[int, int]:
    """Processes that hold GPU memory -> bytes, over all GPUs; empty without GPUs."""
    users: dict[int, int] = {}
    for row in query("--query-compute-apps=pid,used_memory") or ():
        if len(row) == 2 and row[0].isdigit():
            users[int(row[0])] = users.get(int(row[0]), 0) + _bytes(row[1])
    return users
