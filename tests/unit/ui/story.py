"""The events of one deploy that fails above the threshold, as a host sends them."""

from __future__ import annotations

from typing import Any

Json = Any
AT = 1_796_014_800.0
STEPS = (
    ("check", "check 3 files", {"inert": "reads"}),
    ("backup", "back up 3 files", {"inert": "a copy"}),
    ("rehearse", "rehearse the patched package", {"inert": "a copy"}),
    ("stop", "stop the old server (pid 4242)", {"op": "server.restore", "args": {}}),
    ("swap", "swap 3 files", {"op": "files.restore", "args": {}}),
    ("launch", "launch the new server", {"op": "server.kill", "args": {}}),
    ("ready", "await the new server", {"inert": "waits"}),
    ("smoke", "prove both sides of the threshold", {"inert": "asks"}),
)
CHECKS = (
    ("S0", "server info", "pass", "max running 10 >= 10; gate active"),
    ("S1", "one request", "pass", "open: 2.31 tokens a step (1.2 to 4)"),
    ("S3", "above the threshold", "fail", "the scheduler died: RuntimeError: stale spec_info at C=6"),
)


def journal(entry: str, second: float, **more: Json) -> dict[str, Json]:
    return {"event": "journal", "entry": {"entry": entry, "seq": 1, "at": AT + second, **more}}


def progress(milestone: str, fraction: float | None, elapsed_s: float) -> dict[str, Json]:
    return {
        "event": "progress",
        "phase": "ready",
        "milestone": milestone,
        "fraction": fraction,
        "eta_s": 30.0,
        "elapsed_s": elapsed_s,
    }


def events() -> list[dict[str, Json]]:
    by = {"user": "ann", "host": "laptop", "version": "0.1.0"}
    told = [journal("opened", 0, plan_id="20261130-045500-3f9a", kind="deploy", by=by)]
    for index, (phase, name, undo) in enumerate(STEPS):
        told.append(journal("starting", index, index=index, name=name, phase=phase, undo=undo))
        if phase == "ready":
            told += [progress("loading weights", index / 4, 3.0 * index) for index in range(5)]
        if phase == "smoke":
            break
        told.append(journal("done", index + 0.4, index=index, facts={}))
    for number, (check, title, verdict, summary) in enumerate(CHECKS):
        told.append({"event": "check_started", "id": check, "title": title})
        told.append(
            {
                "event": "check",
                "id": check,
                "title": title,
                "verdict": verdict,
                "summary": summary,
                "seconds": 4.2 + number,
                "evidence": {},
            }
        )
        told.append(journal("check", 20 + number, id=check, verdict=verdict, summary=summary))
    cause = {"id": "SCHED_EXC", "message": "RuntimeError: stale spec_info", "rank": 0, "at": AT + 22}
    told.append(journal("verdict", 22.5, cause=cause))
    told.append(journal("failed", 23, index=7, error={"message": "S3 failed"}))
    told.append(journal("evidence", 24, path="/root/.local/state/specops/x/evidence"))
    told.append(journal("settling", 24, cause={"step": "smoke", "message": "S3 failed"}))
    for index in (5, 4, 3):
        told.append(journal("undoing", 25, index=index))
        told.append(journal("undone", 30, index=index, facts={}))
    told.append(journal("closed", 40, how="rolled back", cause={"message": "S3 failed"}, serving=None))
    return told


PLAN: dict[str, Json] = {
    "format": 1,
    "id": "20261130-045500-3f9a",
    "kind": "deploy",
    "host": "lab",
    "instance": {"state": "~/.local/state/specops", "port": 30000, "root": "/opt/venv/lib/sglang"},
    "summary": {"gate": "native", "threshold": 5, "patches": [], "release": "0.5.18", "replaces": None},
    "steps": [
        {"name": name, "phase": phase, "do": {"op": "x", "args": {}}, "undo": undo}
        for phase, name, undo in STEPS
    ],
    "outage": {"load_s": 95.0, "restore_s": 95.0, "replaces": "pid 4242 (/models/tiny)"},
    "diffs": [
        {
            "path": "/opt/venv/lib/sglang/srt/speculative/eagle_worker.py",
            "diff": "--- a\n+++ b\n@@ -1,2 +1,2 @@\n same\n-old\n+new\n",
        }
    ],
    "launch": [
        "/opt/venv/bin/python",
        "-m",
        "sglang.launch_server",
        "--port",
        "30000",
        "--model-path",
        "a b",
    ],
    "env_changes": {"SGLANG_X": "1", "GONE": None},
    "restores": ["srt/speculative/eagle_worker.py: 0123456789ab…", "server: pid 4242 (/models/tiny)"],
    "notes": ["--max-running-requests is raised to 10: the smoke test needs threshold + 5"],
}
