"""Operations that only these tests have: one that waits, one that starts a child, ones that fail."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from specops.remote import files, follow
from specops.remote.context import Context, OpFailed

Json = Any


def wait(ctx: Context, args: dict[str, Json]) -> dict[str, Json]:
    """Until the file `until` exists; polls for an abort as every long operation does."""
    ctx.emit(
        {"event": "progress", "phase": "ready", "milestone": "waiting", "fraction": None, "elapsed_s": 0}
    )
    end = time.monotonic() + 60
    while not Path(args["until"]).exists():
        if ctx.aborted():
            raise OpFailed("aborted", ctx.aborted())
        if time.monotonic() > end:
            raise OpFailed("late", "nobody released this step")
        time.sleep(0.02)
    return {"serving": {"line": "the new server"}}


def start_child(ctx: Context, args: dict[str, Json]) -> dict[str, Json]:
    """A server's stand-in: own session, and every fd that may be inherited is."""
    code = "import time; time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", code], close_fds=False, start_new_session=True)
    return {"pid": child.pid}


def start_helper(ctx: Context, args: dict[str, Json]) -> dict[str, Json]:
    """A load generator's stand-in: in the agent's own group, and the agent waits for it."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    Path(args["note"]).write_text(str(child.pid))
    child.wait()
    return {}


def fill_disk(ctx: Context, args: dict[str, Json]) -> dict[str, Json]:
    """From here on no file of this process may grow beyond its journal's size of now."""
    size = (ctx.deploy_dir / "journal.jsonl").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return {}


def refuse_until(ctx: Context, args: dict[str, Json]) -> dict[str, Json]:
    if not Path(args["until"]).exists():
        raise OpFailed("stuck", "it does not come back")
    return {"serving": {"line": args.get("line", "the old server")}}


def judge(ctx: Context, args: dict[str, Json]) -> dict[str, Json]:
    ctx.record({"entry": "check", "id": args.get("id", "S4"), "verdict": args["verdict"], "summary": ""})
    checks = [{"id": args.get("id", "S4"), "verdict": args["verdict"]}]
    return {"verdict": args["verdict"], "summary": args.get("summary", ""), "checks": checks}


def add() -> None:
    """In the process that a request runs in; pass it as `wrap`."""
    follow.HOLDER_CHECK_S = 0.1
    files.OPS.update(
        {
            "files.wait": wait,
            "files.start_child": start_child,
            "files.start_helper": start_helper,
            "files.fill_disk": fill_disk,
            "files.refuse_until": refuse_until,
            "files.judge": judge,
        }
    )
