"""How well a wait foretells the end of a load that was seen before: `python -m benchmarks.eta`.

The lab's server is launched and awaited by the agent's own operations, several times in one state folder;
each load but the first has an earlier one to go by. What the wait told is kept event by event.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import specops
from benchmarks.diagnose import RELEASE, Bench, leftovers
from benchmarks.failures import Failure
from benchmarks.gated_server import prepare
from specops.lab.processes import free_port
from specops.remote import launch, ready, stop

Json = Any
RESULT = Path(__file__).resolve().parent / "results" / "eta.json"
HALF = 0.5
WITHIN = 0.2


def load_once(bench: Bench, number: int, work: Path) -> dict[str, Json]:
    plain = Failure(id=f"load-{number}", failure_class="", cause="")
    ctx, _ = bench.make_context(plain.id, work)
    told: list[dict[str, Json]] = []
    ctx = replace(ctx, emit=told.append)
    port = free_port()
    try:
        launch.launch(ctx, {"launch": bench.make_spec(plain, ctx, port, work)})
        clocks = {"progress_s": 240, "cap_s": 500}
        args = {"port": port, "cookie": ctx.deploy_id, "ready": clocks, "expect": {}, "gate": "none"}
        load_s = ready.await_server(ctx, args)["load_s"]
    finally:
        stop.kill(ctx, {"cookie": ctx.deploy_id, "port": port})
    events = [event for event in told if event["event"] == "progress"]
    return {
        "load": number,
        "load_s": load_s,
        "events": [[e["elapsed_s"], e["eta_s"], e["eta_of"], e["milestone"]] for e in events],
        "leftovers": leftovers(ctx.deploy_id, port),
    }


def at_half(row: dict[str, Json]) -> dict[str, Json] | None:
    """What the last event before half time said, and how far that was off; None without a word by then."""
    half_s = row["load_s"] * HALF
    heard = [event for event in row["events"] if event[0] <= half_s and event[1] is not None]
    if not heard or heard[-1][2] != "ready":
        return None
    elapsed_s, eta_s, _, milestone = heard[-1]
    foretold_s = elapsed_s + eta_s
    off_s = foretold_s - row["load_s"]
    return {
        "load": row["load"],
        "load_s": row["load_s"],
        "said_at_s": elapsed_s,
        "milestone": milestone,
        "foretold_s": round(foretold_s, 1),
        "off_of_load": round(off_s / row["load_s"], 3),
        "off_of_rest": round(off_s / (row["load_s"] - half_s), 3),
    }


def summary(rows: Sequence[dict[str, Json]]) -> dict[str, Json]:
    """`off_of_rest` is the stricter one: by what share the second half itself was foretold wrong."""
    foretold = [found for row in rows if (found := at_half(row))]
    off = [abs(found["off_of_rest"]) for found in foretold]
    return {
        "loads": len(rows),
        "foretold": len(foretold),
        "within_20_percent_of_rest": sum(share <= WITHIN for share in off),
        "within_20_percent_of_load": sum(abs(found["off_of_load"]) <= WITHIN for found in foretold),
        "off_of_rest_median": round(statistics.median(off), 3) if off else None,
        "off_of_rest_max": max(off, default=None),
        "leftovers": sum(bool(row["leftovers"]) for row in rows),
        "at_half_time": foretold,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loads", type=int, default=6, help="the first has nothing to go by")
    parser.add_argument("--out", type=Path, default=RESULT)
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))
    environment, models = prepare(RELEASE)
    bench = Bench(environment=environment, models=models, nccl_port=free_port())
    rows: list[dict[str, Json]] = []
    with tempfile.TemporaryDirectory() as work:
        for number in range(asked.loads):
            rows.append(load_once(bench, number, Path(work)))
            said = at_half(rows[-1])
            print(f"{number}: {rows[-1]['load_s']} s  {said}", flush=True)
            write(rows, asked.out)
    return 0


def write(rows: list[dict[str, Json]], out: Path) -> None:
    whole = {
        "name": "eta",
        "date": datetime.now(UTC).date().isoformat(),
        "command": "python -m benchmarks.eta",
        "machine": {"cpus": os.cpu_count(), "gpu": "none"},
        "versions": {"specops": specops.__version__, "sglang": RELEASE},
        "rows": rows,
        "summary": summary(rows),
    }
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
