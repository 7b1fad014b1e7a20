"""The smoke test on healthy servers, again and again: `python -m benchmarks.smoke_healthy`.

Releases before 0.5.16 run EAGLEWorkerV2 with the batch gate, later ones with the native gate. Half of the
runs have a process on each core beside them. Prints a line a run; exit 0 only if all pass.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import specops
from benchmarks.gated_server import V2, GatedServer, patched_files, serve, serve_patched, smoke
from specops.lab.older import OLDER, default_home, prepare
from tests.zoo.mutants import overlay

RESULT = Path(__file__).resolve().parent / "results" / "smoke_healthy.json"
BUDGET_S = 1800
"""A verdict is what is asked here, however busy the machine; the rows say how long it took."""
SPIN = "import os; os.nice(5)\nwhile True: pass"
"""Company that takes every idle moment of a core, and gives way a little where others wait for it too."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="in all, spread over the releases")
    parser.add_argument("--release", action="append", help="again for more (0.5.18)")
    parser.add_argument("--port", type=int, default=31320)
    parser.add_argument("--keep", action="store_true", help="add to the rows that are there")
    asked = parser.parse_args()
    releases = asked.release or ["0.5.18"]
    rows = json.loads(RESULT.read_text())["rows"] if asked.keep and RESULT.exists() else []
    for index, release in enumerate(releases):
        count = len(range(index, asked.runs, len(releases)))
        with serve_healthy(release, asked.port) as server:
            for _ in range(count):
                loaded = sum(row["loaded"] for row in rows)
                row = run_once(server, loaded=2 * loaded < len(rows) + 1)
                rows.append(row)
                print(
                    f"{release} {'loaded' if row['loaded'] else 'quiet '} {row['verdict']:13}"
                    f"{row['seconds']:6.1f} s  {row['summary']}",
                    flush=True,
                )
                write(rows)
    return 0 if all(row["verdict"] == "pass" for row in rows) else 1


@contextmanager
def serve_healthy(release: str, port: int) -> Iterator[GatedServer]:
    # On the install's file system, so that a patched copy of it can be links.
    home = default_home() if release in OLDER else None
    with tempfile.TemporaryDirectory(prefix=".healthy-", dir=home) as folder:
        if home is None:
            with serve(release, port, Path(folder)) as server:
                yield server
            return
        tree = overlay(prepare(release, home).package, Path(folder) / "patched", patched_files(release))
        with serve_patched(release, port, Path(folder), tree, V2) as server:
            yield server


def run_once(server: GatedServer, *, loaded: bool) -> dict[str, Any]:
    with company(os.cpu_count() or 1) if loaded else company(0):
        result = smoke(server, budget_s=BUDGET_S)
    checks = result["checks"]
    bad = next((check for check in checks if check["verdict"] != "pass"), None)
    return {
        "release": server.release,
        "gate": server.gate,
        "loaded": loaded,
        "load_average": round(os.getloadavg()[0], 1),
        "verdict": result["verdict"],
        "seconds": round(sum(check["seconds"] for check in checks), 1),
        "checks": {check["id"]: check["verdict"] for check in checks},
        "each_s": {check["id"]: check["seconds"] for check in checks},
        "repeated": [check["id"] for check in checks if "first_try" in check["evidence"]],
        "summary": f"{bad['id']}: {bad['summary']}" if bad else result.get("summary", ""),
    }


@contextmanager
def company(processes: int) -> Iterator[None]:
    """So many processes that do nothing but compute, while the block runs."""
    started = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def write(rows: list[dict[str, Any]]) -> None:
    RESULT.parent.mkdir(exist_ok=True)
    whole = {
        "name": "smoke_healthy",
        "date": datetime.now(UTC).date().isoformat(),
        "command": "make smoke-healthy",
        "machine": {"cpus": os.cpu_count(), "gpu": "none"},
        "versions": {
            "specops": specops.__version__,
            "sglang": ", ".join(sorted({row["release"] for row in rows})),
        },
        "rows": rows,
        "summary": summary(rows),
    }
    RESULT.write_text(json.dumps(whole, indent=1) + "\n")


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    spent = sorted(row["seconds"] for row in rows)
    return {
        "runs": len(rows),
        "passed": sum(row["verdict"] == "pass" for row in rows),
        "loaded": sum(row["loaded"] for row in rows),
        "seconds_min": spent[0],
        "seconds_median": spent[len(spent) // 2],
        "seconds_max": spent[-1],
    }


if __name__ == "__main__":
    raise SystemExit(main())
