"""Rehearsal: the changed package and the launch arguments tried on a copy, while the old server serves."""

from __future__ import annotations

import contextlib
import json
import os
import pkgutil
import resource
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from . import gpus, members, procs
from .context import Context, OpFailed
from .facts import read_version
from .flags import name_hints
from .launch import Start, expand, resolve

Json = Any
DEADLINE_S = 240.0
MEMORY_BYTES = 64 * 1024**3
TAIL = 4000
UNTOUCHED = "the old server was not touched"


def rehearse(ctx: Context, args: dict[str, Json]) -> dict[str, Json]:
    """`copy` names the folder of a copy that is there already, the one that the server is launched from."""
    start = resolve(ctx, {**args["launch"], "scope": None})
    given = args.get("copy")
    folder = Path(expand(ctx, given)) if given else ctx.deploy_dir / "rehearsal"
    began = time.monotonic()
    try:
        if not given:
            shutil.rmtree(folder, ignore_errors=True)
            copy_package(ctx, folder, args.get("files") or [])
        report = _run_child(ctx, start, folder, args, hide_gpus=True)
        if not report.get("ok") and str(report.get("stage")).startswith("import") and gpus.find_smi():
            # some kernel packages look for a GPU when imported; an import alone takes no memory on it
            report = _run_child(ctx, start, folder, args, hide_gpus=False)
    except OSError as error:
        raise OpFailed(
            "rehearsal_failed", f"the rehearsal could not be prepared: {error}", host_state=UNTOUCHED
        ) from error
    finally:
        if not given:
            shutil.rmtree(folder, ignore_errors=True)
    if not report.get("ok"):
        raise _failed(report)
    return {
        "modules": report.get("modules") or {},
        "arguments": report.get("arguments"),
        "version": report.get("version"),
        "runtime": report.get("runtime"),
        "kernel": report.get("kernel"),
        "copied": "sglang",
        "seconds": round(time.monotonic() - began, 1),
    }


def copy_package(ctx: Context, folder: Path, files: list[dict[str, Json]]) -> Path:
    """The install's sglang folder under `folder`, with the staged files over it.

    A true copy: loaders resolve links back to the install. Bytecode comes along, for it is checked
    against its source's time and size and saves the compilation of thousands of modules.
    """
    install = Path(ctx.instance["root"])
    root = folder / "sglang"
    folder.mkdir(mode=0o700)
    shutil.copytree(install, root, symlinks=True)
    for base, _, _ in os.walk(root):  # a read-only install's folders come with their modes
        os.chmod(base, os.stat(base).st_mode | 0o700)
    for file in files:
        path = Path(os.path.expanduser(str(file["path"])))
        if not path.is_relative_to(install):
            continue
        target = root / path.relative_to(install)
        for stale in (target.parent / "__pycache__").glob(f"{target.stem}.*.pyc"):
            stale.unlink()
        if file.get("sha256") is None:
            target.unlink(missing_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        shutil.copyfile(ctx.store_dir / str(file["sha256"]), target)
    return root


def _run_child(
    ctx: Context, start: Start, folder: Path, args: dict[str, Json], *, hide_gpus: bool
) -> dict[str, Json]:
    program = (pkgutil.get_data(__package__ or "", "data/rehearsal.py") or b"").decode()
    env = dict(start.env)
    env["PYTHONPATH"] = ":".join(part for part in (str(folder), env.get("PYTHONPATH", "")) if part)
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    if hide_gpus:
        env["CUDA_VISIBLE_DEVICES"] = ""
    env.pop(procs.COOKIE, None)
    reading, writing = os.pipe()
    spec = {
        "folder": str(folder),
        "install": str(ctx.instance["root"]),
        "modules": list(args.get("modules") or ()),
        "argv": start.argv[1:],
        "report_fd": writing,
        # with a GPU in sight the driver reserves addresses for all memory that it could ever map
        "memory_bytes": MEMORY_BYTES if hide_gpus else resource.RLIM_INFINITY,
        "cpu_s": int(DEADLINE_S * 4),
        "driver": gpus.read_stack() if uses_gpus(start) else None,
        "hints": name_hints(read_version(Path(ctx.instance["root"])) or "0"),
    }
    python = str(ctx.instance.get("python") or start.argv[0])
    with (
        tempfile.TemporaryFile(dir=ctx.deploy_dir) as said,
        tempfile.TemporaryFile(dir=ctx.deploy_dir) as asked,
    ):
        asked.write(json.dumps(spec).encode())
        asked.seek(0)
        child: subprocess.Popen[bytes] = subprocess.Popen(
            [os.path.expanduser(python), "-c", program],
            env=env,
            cwd=start.cwd,
            stdin=asked,
            stdout=said,
            stderr=said,
            pass_fds=(writing,),
            start_new_session=True,
        )
        os.close(writing)
        try:
            report = _await_report(ctx, child, reading, float(args.get("deadline_s") or DEADLINE_S))
        finally:
            os.close(reading)
            _end(child)
        said.seek(0)
        report.setdefault("said", said.read().decode("utf-8", "replace")[-TAIL:])
        report.setdefault("error", f"the rehearsal ended with code {child.returncode} and without a report")
    return report


def uses_gpus(start: Start) -> bool:
    """Unless its arguments or its environment say that it computes on the CPU."""
    on_cpu = members.find_option(start.argv, "--device") == "cpu"
    return not on_cpu and start.env.get("SGLANG_USE_CPU_ENGINE", "0").lower() not in ("1", "true")


def _await_report(
    ctx: Context, child: subprocess.Popen[bytes], reading: int, deadline_s: float
) -> dict[str, Json]:
    """The child's last report: it tells each stage as it begins, so that a hang has a name."""
    until = time.monotonic() + deadline_s
    data = b""
    while time.monotonic() < until:
        if ctx.aborted():
            raise OpFailed("aborted", f"aborted during the rehearsal: {ctx.aborted()}", host_state=UNTOUCHED)
        if select.select([reading], [], [], 0.3)[0]:
            piece = os.read(reading, 65536)
            if not piece:
                return _last_report(data)
            data += piece
    report = _last_report(data)
    return {**report, "ok": False, "error": f"not done after {deadline_s:.0f} s"}


def _last_report(data: bytes) -> dict[str, Json]:
    lines = data.splitlines()
    report = json.loads(lines[-1]) if lines else {"stage": "start of Python"}
    return report if isinstance(report, dict) else {}


def _end(child: subprocess.Popen[bytes]) -> None:
    """The child and whatever it started: its group is its own."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(timeout=3)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _failed(report: dict[str, Json]) -> OpFailed:
    stage, error = report.get("stage") or "start", report.get("error") or "it ended without a word"
    hint = report.get("hint")
    return OpFailed(
        "rehearsal_failed",
        f"the rehearsal failed at {stage}: {error}" + (f" ({hint})" if hint else ""),
        detail={"stage": stage, "traceback": report.get("traceback"), "said": report.get("said")},
        host_state=UNTOUCHED,
        next_command=report.get("next") or "repair the patch, then deploy again",
    )
