"""Start and stop the lab's server again and again, killed at a random moment: `python -m benchmarks.cycles`.

Each round starts it by the agent's own launch, follows its log to a moment drawn at random over a whole load,
kills one of its processes there (or none), and stops the rest as a deploy's undo does. Then nothing may be
left: no process with its cookie or of its session, no port, no segment in /dev/shm. That folder is a new one,
for the benchmark alone (a mount namespace): other servers of the machine make segments too.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import specops
from benchmarks.diagnose import RELEASE, Bench
from benchmarks.failures import Failure
from benchmarks.gated_server import prepare
from specops.lab.processes import free_port
from specops.remote import launch, members, procs, shm, stop
from specops.remote.api import api_of
from specops.remote.logscan import LogReader, Progress

Json = Any
RESULT = Path(__file__).resolve().parent / "results" / "cycles.json"
SHM = Path("/dev/shm")  # noqa: S108 looked at, not written to
OWN_SHM = "SPECOPS_CYCLES_SHM"
MOMENTS = (
    "started",
    "arguments",
    "processes",
    "process group",
    "weights",
    "weights loaded",
    "kv cache",
    "scheduler",
    "http",
    "warm-up done",
    "a request runs",
)
"""The first is at once; the last is after a request was sent to the ready server."""
VICTIMS = ("launcher", "scheduler", "detokenizer", "nobody")
PATIENCE_S = 300.0


def run_round(bench: Bench, number: int, draw: random.Random, work: Path) -> dict[str, Json]:
    plain = Failure(id=f"cycle-{number}", failure_class="", cause="")
    ctx, _ = bench.make_context(plain.id, work)
    port, moment, victim = free_port(), draw.choice(MOMENTS), draw.choice(VICTIMS)
    before = segments()
    note = launch.launch(ctx, {"launch": bench.make_spec(plain, ctx, port, work)})
    pid, ticks = int(note["pid"]), int(note["start_ticks"])
    began = time.monotonic()
    phase = "?"
    try:
        memory = shm.Watch(ctx.deploy_dir, ctx.deploy_id)
        phase = follow(ctx.deploy_dir / "server.log", memory, moment, pid, ticks, port)
        time.sleep(draw.uniform(0.0, 1.0))
        struck = strike(victim, pid)
    finally:
        loaded_s = time.monotonic() - began
        stopping = time.monotonic()
        stopped = stop.kill(ctx, {"cookie": ctx.deploy_id, "port": port})["stopped"]
    return {
        "moment": moment,
        "phase": phase,
        "victim": victim,
        "struck": struck,
        "alive_s": round(loaded_s, 1),
        "stop_s": round(time.monotonic() - stopping, 2),
        "stopped": len(stopped),
        "leftovers": leftovers(ctx.deploy_id, pid, ticks, port, before),
    }


def follow(log: Path, memory: shm.Watch, moment: str, pid: int, ticks: int, port: int) -> str:
    """Until the load has come to `moment`, or its server is gone. The phase that was reached."""
    reader, progress = LogReader(log), Progress()
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and procs.lives(pid, ticks):
        memory.look({pid} | procs.children_of(pid))  # as the wait of a deploy does
        for line in reader.read_lines():
            progress.take(line)
        if moment in ("started", progress.milestone):
            return progress.milestone
        if moment == "a request runs" and progress.milestone == "warm-up done":
            body = {"text": "a", "sampling_params": {"max_new_tokens": 64}}
            api_of(port).ask("/generate", body, timeout_s=0.5)
            return moment
        if moment in MOMENTS and _rank(progress.milestone) > _rank(moment):
            return progress.milestone
        time.sleep(0.02)
    return progress.milestone


def _rank(milestone: str) -> int:
    return MOMENTS.index(milestone) if milestone in MOMENTS else -1


def strike(victim: str, pid: int) -> bool:
    """Whether there was such a process to kill."""
    if victim == "nobody":
        return True
    if victim == "launcher":
        targets = [pid]
    else:
        targets = [
            child
            for child in procs.children_of(pid)
            if victim in " ".join(procs.read_argv(child)[:1]) and procs.read_argv(child)[:1]
        ]
    for target in targets[:1]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(target, signal.SIGKILL)
    return bool(targets)


def segments() -> set[str]:
    return {path.name for path in SHM.iterdir()} if SHM.is_dir() else set()


def leftovers(cookie: str, pid: int, ticks: int, port: int, before: set[str]) -> list[str]:
    scan = procs.scan_processes()
    found = members.find_members(scan, pid=pid, start_ticks=ticks, cookie=cookie)
    left = [f"process {each}: {' '.join(procs.read_argv(each))[:60]}" for each in sorted(found)]
    if not procs.port_is_free(port):
        left.append(f"port {port}")
    return left + [str(SHM / name) for name in sorted(segments() - before)]


def with_own_shm() -> None:
    """Become this program once more, with a /dev/shm of its own."""
    if os.environ.get(OWN_SHM):
        return
    mount = ["sh", "-c", f'mount -t tmpfs {OWN_SHM} {SHM} && exec "$@"', "sh"]
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    again = [sys.executable, "-m", "benchmarks.cycles", *sys.argv[1:]]
    os.execvpe(  # noqa: S606
        "unshare", ["unshare", "--mount", *as_root, *mount, *again], {**os.environ, OWN_SHM: "1"}
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=50)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--keep", action="store_true", help="go on after the rows that are there")
    asked = parser.parse_args()
    with_own_shm()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))
    environment, models = prepare(RELEASE)
    bench = Bench(environment=environment, models=models, nccl_port=free_port())
    rows = json.loads(asked.out.read_text())["rows"] if asked.keep and asked.out.exists() else []
    for number in range(len(rows), asked.cycles):
        with tempfile.TemporaryDirectory() as work:
            row = run_round(bench, number, random.Random(asked.seed * 1000 + number), Path(work))
        rows.append(row)
        said = f"{number:3} {row['phase']:16}{row['victim']:12}{row['stop_s']:6.1f} s"
        print(f"{said}  {row['leftovers']}", flush=True)
        write(rows, asked.out)
    for phase, count in summary(rows)["phases"].items():
        print(f"{phase:18}{'#' * count} {count}")
    return 0 if not any(row["leftovers"] for row in rows) else 1


def write(rows: list[dict[str, Json]], out: Path) -> None:
    whole = {
        "name": "cycles",
        "date": datetime.now(UTC).date().isoformat(),
        "command": "python -m benchmarks.cycles",
        "machine": {"cpus": os.cpu_count(), "gpu": "none"},
        "versions": {"specops": specops.__version__, "sglang": RELEASE},
        "rows": rows,
        "summary": summary(rows),
    }
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(whole, indent=1) + "\n")


def summary(rows: list[dict[str, Json]]) -> dict[str, Json]:
    """With the histogram of the phases in which a server was struck, in the order of a load."""
    phases = collections.Counter(row["phase"] for row in rows)
    return {
        "cycles": len(rows),
        "leftovers": sum(bool(row["leftovers"]) for row in rows),
        "phases": {phase: phases[phase] for phase in sorted(phases, key=_rank)},
        "victims": dict(sorted(collections.Counter(row["victim"] for row in rows).items())),
        "without_a_victim": sum(not row["struck"] for row in rows),
        "stop_s_max": max((row["stop_s"] for row in rows), default=None),
    }


if __name__ == "__main__":
    raise SystemExit(main())
