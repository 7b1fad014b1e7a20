"""What a job costs beside its work: `python -m benchmarks.ops_overhead`, specops and four other tools.

Each tool does the same over the same sshd on loopback, through a proxy that adds a round trip: `plan` (facts,
hashes of five files of 27 KB, the diff) and `change` (back up, hash, write and sync the five files, run five
commands). The clock runs from the start of the tool's process to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import specops
from benchmarks.ops.host import Host
from benchmarks.ops.priority import rise_above
from benchmarks.ops.slow_link import SlowLink
from benchmarks.ops.tools import REQUIREMENTS, TOOLS, Call, call_of, competitors, write_specops_files
from benchmarks.summarize import print_table, summarize
from tests.conformance.sshd import Sshd

RESULT = Path(__file__).resolve().parent / "results" / "ops_overhead.json"
JOBS = ("plan", "change")
SSHD_OPTIONS = (
    "LogLevel VERBOSE",
    "Subsystem sftp internal-sftp",
    "MaxSessions 100",
    # A bash that is not the first one reads no ~/.bashrc: what this machine's does is nobody's work here.
    "SetEnv SHLVL=2",
)
LONGEST_S = 180
TARGET_RTT_MS, TARGET_S = 50, 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rtt", type=int, action="append", help="ms; again for more (0, 50 and 100)")
    parser.add_argument("--tool", action="append", choices=TOOLS, help="again for more (all)")
    parser.add_argument("--job", action="append", choices=JOBS, help="again for more (both)")
    parser.add_argument("--port", type=int, default=31480, help="of sshd")
    parser.add_argument("--dry", action="store_true", help="print, and leave the result file alone")
    parser.add_argument("--first", action="store_true", help="before all other work of the machine (root)")
    asked = parser.parse_args()
    if asked.first:
        rise_above()
    if asked.tool != ["specops"]:
        competitors()
    rows: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory(prefix="ops-") as work,
        Sshd(Path(work) / "sshd", asked.port, options=SSHD_OPTIONS) as sshd,
        SlowLink(asked.port) as link,
    ):
        host = Host(sshd=sshd, folder=Path(work))
        host.build()
        job = host.job(link.port)
        write_specops_files(host, job)
        # A repeat is a round of all tools, so that what else the machine does falls on all of them alike;
        # round 0 fills their caches and is not kept.
        for repeat in range(asked.repeats + 1):
            for rtt_ms in asked.rtt or (0, 50, 100) if repeat else (0,):
                for what in asked.job or JOBS:
                    for tool in asked.tool or TOOLS:
                        row = measure(host, link, job, tool=tool, rtt_ms=rtt_ms, what=what, repeat=repeat)
                        print(json.dumps(row), flush=True)
                        rows += [row] if repeat else []
    whole = describe(rows, first=asked.first)
    if not asked.dry:
        RESULT.write_text(json.dumps(whole, indent=1) + "\n")
    print_table(whole)
    return 0 if all(row["ok"] for row in rows) else 1


def measure(
    host: Host, link: SlowLink, job: dict[str, Any], *, tool: str, rtt_ms: int, what: str, repeat: int
) -> dict[str, Any]:
    host.reset()
    link.rtt_s = rtt_ms / 1000
    call = call_of(tool, what, host, job)
    connections, sessions = link.connections, host.sessions()
    cpu_before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    done = subprocess.run(
        call.argv,
        env=dict(call.env),
        cwd=host.folder,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=LONGEST_S,
        check=False,
    )
    wall_s = time.monotonic() - began
    cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
    right = host.is_changed() if what == "change" else host.is_unchanged()
    row = {
        "tool": tool,
        "rtt_ms": rtt_ms,
        "job": what,
        "repeat": repeat,
        "wall_s": round(wall_s, 3),
        "local_cpu_s": round(cpu.ru_utime + cpu.ru_stime - cpu_before.ru_utime - cpu_before.ru_stime, 3),
        "connections": link.connections - connections,
        "sessions": host.sessions() - sessions,
        "ok": right and done.returncode == 0,
        "load_average": round(os.getloadavg()[0], 1),
    }
    if not row["ok"]:
        row["said"] = (done.stdout + done.stderr).decode(errors="replace")[-600:]
    end_masters(call)
    return row


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A line for each job, round trip and tool: median and spread of the wall clock."""
    keys = sorted({(row["job"] == "change", row["rtt_ms"], TOOLS.index(row["tool"])) for row in rows})
    return {
        "targets_met": targets_met(rows),
        "table": [summarize_one(rows, JOBS[job], rtt_ms, TOOLS[tool]) for job, rtt_ms, tool in keys],
    }


def summarize_one(rows: list[dict[str, Any]], what: str, rtt_ms: int, tool: str) -> dict[str, Any]:
    mine = [row for row in rows if (row["job"], row["rtt_ms"], row["tool"]) == (what, rtt_ms, tool)]
    walls = [row["wall_s"] for row in mine]
    return {
        "job": what,
        "rtt_ms": rtt_ms,
        "tool": tool,
        "median_s": round(statistics.median(walls), 2),
        "min_s": round(min(walls), 2),
        "max_s": round(max(walls), 2),
        "local_cpu_s": round(statistics.median(row["local_cpu_s"] for row in mine), 2),
        "connections": max(row["connections"] for row in mine),
        "sessions": max(row["sessions"] for row in mine),
        "runs": len(mine),
        "failed": sum(not row["ok"] for row in mine),
    }


def targets_met(rows: list[dict[str, Any]]) -> dict[str, bool]:
    """specops at 50 ms: each job in a second, over one connection."""
    met = {}
    for what in JOBS:
        if any((row["tool"], row["rtt_ms"], row["job"]) == ("specops", TARGET_RTT_MS, what) for row in rows):
            line = summarize_one(rows, what, TARGET_RTT_MS, "specops")
            met[what] = line["median_s"] <= TARGET_S and line["connections"] == 1 and not line["failed"]
    return met


def end_masters(call: Call) -> None:
    """OpenSSH's shared connections of this run: the next one starts without."""
    for socket in call.control_sockets.glob("*") if call.control_sockets else ():
        argv = ["ssh", "-O", "exit", "-o", f"ControlPath={socket}", "nowhere"]
        subprocess.run(argv, capture_output=True, check=False)


def describe(rows: list[dict[str, Any]], *, first: bool) -> dict[str, Any]:
    used = dict(requirement.split("==") for requirement in REQUIREMENTS)
    return {
        "name": "ops_overhead",
        "date": datetime.now(UTC).date().isoformat(),
        "command": "python -m benchmarks.ops_overhead" + (" --first" if first else ""),
        "machine": {"cpus": os.cpu_count(), "gpu": "none", "first": first},
        "versions": {"specops": specops.__version__, **used},
        "rows": rows,
        "summary": summarize("ops_overhead", rows),
    }


if __name__ == "__main__":
    raise SystemExit(main())
