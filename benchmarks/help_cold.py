"""How long `specops --help` takes in a new process: `python -m benchmarks.help_cold`.

Beside each run one of the same interpreter that does nothing: the ratio holds on a busy machine too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import specops
from benchmarks.ops.priority import rise_above
from benchmarks.summarize import print_table, summarize

RESULT = Path(__file__).resolve().parent / "results" / "help_cold.json"
PROGRAMS = {"specops --help": ["-m", "specops", "--help"], "python -c pass": ["-c", "pass"]}
TARGET_S = 0.25


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--first", action="store_true", help="before all other work of the machine (root)")
    asked = parser.parse_args()
    if asked.first:
        rise_above()
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    env["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
    rows = []
    # Round 0 writes the bytecode, as an installer does, and is not kept.
    for repeat in range(asked.repeats + 1):
        for program, words in PROGRAMS.items():
            began = time.monotonic()
            subprocess.run([sys.executable, *words], check=True, capture_output=True, env=env)
            row = {"program": program, "repeat": repeat, "wall_s": round(time.monotonic() - began, 4)}
            rows += [{**row, "load_average": round(os.getloadavg()[0], 1)}] if repeat else []
    found = summarize("help_cold", rows)
    whole = {
        "name": "help_cold",
        "date": datetime.now(UTC).date().isoformat(),
        "command": "python -m benchmarks.help_cold" + (" --first" if asked.first else ""),
        "machine": {"cpus": os.cpu_count(), "gpu": "none", "first": asked.first},
        "versions": {"specops": specops.__version__, "python": platform.python_version()},
        "rows": rows,
        "summary": found,
    }
    RESULT.write_text(json.dumps(whole, indent=1) + "\n")
    print_table(whole)
    return 0 if found["target_met"] else 1


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    by = {name: [row["wall_s"] for row in rows if row["program"] == name] for name in PROGRAMS}
    mine, bare = (by[name] for name in PROGRAMS)
    return {
        "median_s": round(statistics.median(mine), 3),
        "min_s": round(min(mine), 3),
        "max_s": round(max(mine), 3),
        "python_median_s": round(statistics.median(bare), 3),
        "ratio": round(statistics.median(mine) / statistics.median(bare), 1),
        "target_met": statistics.median(mine) <= TARGET_S,
    }


if __name__ == "__main__":
    raise SystemExit(main())
