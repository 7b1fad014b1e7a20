"""Evidence of a failure, gathered on the host before anything is undone: bounded in time and size."""

from __future__ import annotations

import base64
import io
import json
import os
import platform
import shutil
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import evidence_log, facts, gpus, history, members, procs, redact, state
from .api import api_of
from .context import Context, OpFailed
from .evidence_log import FILE_CAP, HEAD_CAP
from .launch import SERVER_FILE

Json = Any
BUDGET_S = 10.0
STACKS = 8
"""Processes whose stacks are taken at most."""


def collect(ctx: Context, cause: dict[str, Json]) -> Path:
    """Write `<deploy_dir>/evidence/`; what cannot be had in time is named in its index."""
    folder = ctx.deploy_dir / "evidence"
    state.make_private(folder)
    until = time.monotonic() + BUDGET_S
    scrub = redact.VaultScrub(ctx.vault, ctx.secrets.values())
    found: dict[str, str] = {}
    log = ctx.deploy_dir / "server.log"
    parts: tuple[tuple[str, Callable[[], Json]], ...] = (
        ("cause.json", lambda: cause),
        ("processes.json", lambda: _processes(ctx)),
        ("ports.json", lambda: _ports(ctx)),
        ("root.json", lambda: evidence_log.read_window(log)),
        ("ranks.json", lambda: evidence_log.read_ranks(log)),
        ("server.log", lambda: evidence_log.read_log(log)),
        ("old-server.log", lambda: evidence_log.read_log(ctx.deploy_dir / "old-server.log")),
        ("versions.json", lambda: _versions(ctx)),
        ("server-info.json", lambda: _info(ctx)),
        ("journal.jsonl", lambda: _tail(ctx.deploy_dir / "journal.jsonl", FILE_CAP)),
        ("plan.json", lambda: _tail(ctx.deploy_dir / "plan.json", FILE_CAP)),
        ("gpus.json", lambda: {"gpus": gpus.read_gpus(), "users": gpus.read_users()}),
        ("kernel.txt", lambda: _kernel_log()),
        ("stacks.txt", lambda: _stacks(ctx, until)),
    )
    for name, part in parts:
        found[name] = _write_until(until, folder / name, part, scrub)
    _write(folder / "index.json", lambda: {"at": time.time(), "files": found}, scrub)
    return folder


def _write_until(until: float, path: Path, part: Callable[[], Json], scrub: Callable[[Json], Json]) -> str:
    """In a thread: what hangs in a driver or a dead file system must not keep the undo waiting."""
    left_s = until - time.monotonic()
    if left_s <= 0:
        return "left out: no time"
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(_write(path, part, scrub)), daemon=True)
    thread.start()
    thread.join(left_s)
    return said[0] if said else "left out: it did not end in time"


def _write(path: Path, part: Callable[[], Json], scrub: Callable[[Json], Json]) -> str:
    """`ok`, or why this part is missing: no part may cost the others."""
    try:
        value = scrub(part())
        if value is None:
            return "nothing to see"
        text = value if isinstance(value, str) else json.dumps(value, indent=1, default=str)
        state.write_private(path, text.encode("utf-8", "replace")[: 2 * FILE_CAP])
    except Exception as error:
        return f"failed: {type(error).__name__}: {error}"
    return "ok"


def _note(ctx: Context) -> dict[str, Json]:
    return state.read_json(ctx.deploy_dir / SERVER_FILE) or {}


def _members(ctx: Context) -> tuple[dict[int, procs.Process], list[int]]:
    note, scan = _note(ctx), procs.scan_processes()
    found = members.find_members(
        scan,
        pid=note.get("pid"),
        start_ticks=note.get("start_ticks"),
        cookie=str(note.get("cookie") or ctx.deploy_id),
    )
    return scan, sorted(found)


def _processes(ctx: Context) -> Json:
    scan, found = _members(ctx)
    return [
        {
            "pid": pid,
            "ppid": scan[pid].ppid,
            "state": scan[pid].state,
            "argv": redact.redact_argv(procs.read_argv(pid))[:40],
            "rss": procs.read_status(pid).get("VmRSS"),
            "cpu_ticks": procs.cpu_ticks(pid),
            "waits_in": _text(f"/proc/{pid}/wchan"),
        }
        for pid in found
    ]


def _ports(ctx: Context) -> Json:
    port = int(_note(ctx).get("port") or ctx.instance.get("port") or 0)
    return {"port": port, "free": procs.port_is_free(port), "tcp": _text("/proc/net/tcp", FILE_CAP)}


def _info(ctx: Context) -> Json:
    note = _note(ctx)
    if not note or not procs.lives(int(note["pid"]), int(note["start_ticks"])):
        return None
    return api_of(int(note["port"]), procs.read_argv(int(note["pid"]))).get_info(timeout_s=1.5) or None


def _text(path: str, cap: int = 256) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(cap).decode("utf-8", "replace")
    except OSError:
        return ""


def _tail(path: Path, cap: int) -> str | None:
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - cap))
            return file.read(cap).decode("utf-8", "replace")
    except OSError:
        return None


def _versions(ctx: Context) -> Json:
    root = Path(str(ctx.instance.get("root") or "/nonexistent"))
    return {
        "sglang": facts.read_version(root),
        "torch": facts.metadata_version(root.parent, "torch"),
        "kernels": facts.metadata_version(root.parent, "sgl_kernel")
        or facts.metadata_version(root.parent, "sglang_kernel"),
        "transformers": facts.metadata_version(root.parent, "transformers"),
        "agent_python": platform.python_version(),
        "kernel": platform.release(),
        "gpu_driver": gpus.read_driver(),
        "agent": ctx.agent_zip.stem,
    }


def _kernel_log() -> str | None:
    """The kernel's last lines: an out-of-memory kill or a GPU fault (Xid) is written there only."""
    return _run(["dmesg", "--ctime"], 2.0)


def _stacks(ctx: Context, until: float) -> str | None:
    folder = str(Path(ctx.instance.get("python") or "/usr/bin/python3").parent)
    spy = shutil.which("py-spy", path=f"{folder}:/usr/local/bin:/usr/bin")
    if spy is None:
        return None
    texts = []
    for pid in _members(ctx)[1][:STACKS]:
        left = until - time.monotonic()
        if left <= 0.5:
            break
        texts.append(f"== {pid}\n{_run([spy, 'dump', '--pid', str(pid)], min(3.0, left))}")
    return "\n".join(texts) or None


def _run(argv: list[str], timeout_s: float) -> str | None:
    try:
        done = subprocess.run(argv, capture_output=True, timeout=timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (done.stdout + done.stderr).decode("utf-8", "replace")[-HEAD_CAP:]


def pack(deploy_dir: Path) -> bytes:
    """The evidence folder as tar.gz, names starting with the deploy's id."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path in sorted((deploy_dir / "evidence").glob("*")):
            archive.add(path, arcname=f"{deploy_dir.name}/{path.name}", recursive=False)
    return buffer.getvalue()


def bundle(params: dict[str, Json], emit: Callable[[dict[str, Json]], None]) -> dict[str, Json]:
    """The verb `evidence`: {deploy, base64 of a tar.gz}; of the named deploy, else the last with any."""
    instance = state.open_instance(params)
    wanted = params.get("deploy")
    for past in reversed(history.read_deploys(instance)):
        if wanted not in (None, past.id):
            continue
        if (past.dir / "evidence").is_dir():
            return {"deploy": past.id, "base64": base64.b64encode(pack(past.dir)).decode()}
    what = f"deploy {wanted} has no evidence" if wanted else "no deploy of this instance has evidence"
    raise OpFailed("no_file", what, next_command="specops history")
