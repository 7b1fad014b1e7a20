"""The host of a tensor-parallel run, seen from outside of specops: processes, ranks, port, cards, files."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from specops.remote.gpus import read_gpus, read_users

MARK = "SPECOPS_TP_RUN"
"""In the environment of everything that a run starts, so that nothing of it can be lost."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
CARD_SLACK = 256 * 1024 * 1024
"""Bytes that a card may hold more than before the run: the driver's own noise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Box:
    """Where it runs, and what is asked of the server."""

    backend: str
    """What the ranks talk through: nccl or gloo."""
    tp: int
    release: str
    python: Path
    package: Path
    """The install's sglang folder."""
    models: Path
    port: int
    work: Path
    env: Mapping[str, str]
    """Of the server; MARK is added."""
    server: Mapping[str, Any]
    """The playbook's `server` section, without tp and port."""
    ready: Mapping[str, float]
    budget_s: int
    """Of the smoke test."""
    threshold: int = 5
    checks: tuple[str, ...] = ("S0", "S3", "S2", "S5", "S6")
    log_interval: int = 10
    """Steps between two decode lines; the smoke test's windows span twice as many."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def mark(self) -> str:
        return str(self.work)


def write_configuration(box: Box) -> None:
    """inventory.yaml and playbook.yaml in the work folder (JSON is YAML)."""
    host = {
        "address": "local",
        "python": str(box.python),
        "state": str(box.work / "state"),
        "playbook": str(box.work / "playbook.yaml"),
        "env": {**box.env, MARK: box.mark},
        "instances": [{"name": "tp", "port": box.port}],
    }
    smoke = {
        "checks": list(box.checks),
        "budget_s": box.budget_s,
        # A run that measures wants the rows that can be had; a fail still rolls back.
        "on_inconclusive": {"boundary": "keep", "others": "keep"},
    }
    playbook = {
        "name": f"tp{box.tp}-gated",
        "model": {"path": str(box.models / "target"), "served_name": "tp"},
        "draft": {"path": str(box.models / "draft"), "num_steps": 3, "topk": 1},
        "server": {"tp": box.tp, "decode_log_interval": box.log_interval, **box.server},
        "gate": {"kind": "batch-gate", "threshold": box.threshold},
        "ready": dict(box.ready),
        "stop": {"drain_s": 2, "term_s": 15},
        "smoke": smoke,
    }
    box.work.mkdir(parents=True, exist_ok=True)
    (box.work / "inventory.yaml").write_text(json.dumps({"hosts": {"box": host}}, indent=1))
    (box.work / "playbook.yaml").write_text(json.dumps(playbook, indent=1))


def environ(pid: int) -> dict[str, str]:
    """Empty for a process that is gone, a zombie, or another user's."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    return dict(word.decode("utf-8", "replace").split("=", 1) for word in words if b"=" in word)


def processes(name: str, value: str) -> list[int]:
    """Whoever carries `name=value` in its environment, without this process."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return sorted(pid for pid in pids if pid != os.getpid() and environ(pid).get(name) == value)


def title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode("utf-8", "replace").strip()
    except OSError:
        return ""


def find_rank(cookie: str, rank: int) -> int | None:
    """The pid of one tensor-parallel rank of the server with this cookie."""
    found = [
        pid for pid in processes("SPECOPS_COOKIE", cookie) if title(pid) == f"sglang::scheduler_TP{rank}"
    ]
    return found[0] if found else None


def ask(box: Box, path: str, body: object = None, timeout_s: float = 5.0) -> Any:
    """The JSON answer of the server; None where there is none in time."""
    try:
        answer = requests.request("POST" if body else "GET", box.url + path, json=body, timeout=timeout_s)
        return answer.json() if answer.ok else None
    except (requests.RequestException, ValueError):
        return None


def gets_token(box: Box, timeout_s: float = 3.0) -> bool:
    body = {"text": "a", "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
    answer = ask(box, "/generate", body, timeout_s)
    return isinstance(answer, dict) and bool(answer.get("meta_info", {}).get("completion_tokens"))


def read_gate(box: Box) -> dict[str, Any]:
    """`speculative_gate` of the server info; empty where the server does not answer."""
    info = ask(box, "/get_server_info", timeout_s=10.0)
    states = info.get("internal_states") if isinstance(info, dict) else None
    return dict(states[0].get("speculative_gate") or {}) if states else {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Before:
    """What has to be so again at the end."""

    files: str
    cards: Mapping[str, int]
    """Bytes in use by uuid."""
    shared_memory: frozenset[str]


def look(box: Box) -> Before:
    return Before(files=digest(box.package), cards=cards_in_use(), shared_memory=shared_memory(box))


def shared_memory(box: Box) -> frozenset[str]:
    """What NCCL and others leave there. Only where the machine is ours alone can it be told whose it is."""
    alone = box.backend == "nccl" and SHARED_MEMORY.is_dir()
    return frozenset(os.listdir(SHARED_MEMORY)) if alone else frozenset[str]()


def digest(package: Path) -> str:
    """Of every file of the install but bytecode: path and content."""
    total = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            total.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes())
    return total.hexdigest()


def cards_in_use() -> dict[str, int]:
    cards = read_gpus()
    return {} if cards == "none" else {card["uuid"]: card["mem_total"] - card["mem_free"] for card in cards}


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def find_leftovers(box: Box, before: Before, patience_s: float = 10.0) -> list[str]:
    """In words; looked for again until the patience is over, for processes and memory go late."""
    until = time.monotonic() + patience_s
    while (found := _left_now(box, before)) and time.monotonic() < until:
        time.sleep(0.5)
    if digest(box.package) != before.files:
        found.append("files of the install differ from before")
    return found


def _left_now(box: Box, before: Before) -> list[str]:
    found = [f"process {pid} {title(pid)}" for pid in processes(MARK, box.mark)]
    if not port_is_free(box.port):
        found.append(f"port {box.port} is held")
    for uuid, used in cards_in_use().items():
        if used > before.cards.get(uuid, 0) + CARD_SLACK:
            found.append(f"card {uuid} holds {used} bytes, {before.cards.get(uuid, 0)} before")
    found += [f"process {pid} holds {held} bytes of a card" for pid, held in sorted(read_users().items())]
    added = sorted(shared_memory(box) - before.shared_memory)
    return found + [f"{SHARED_MEMORY}/{name}" for name in added]


def end_everything(box: Box) -> None:
    """The last resort of a run that went wrong: whatever carries its mark is killed."""
    for pid in processes(MARK, box.mark):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
