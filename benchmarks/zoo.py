"""Every mutant of tests/zoo on a real server, judged by the smoke test: `python -m benchmarks.zoo [ID ...]`.

Prints a matrix mutant x check. Exit 0 only if each mutant ends in a fail whose first failing check is the one
that tests/zoo/expected.yaml named, with nothing but passes before it.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import specops
from benchmarks.gated_server import prepare, serve, smoke
from specops.errors import SpecopsError
from tests.zoo.mutants import Mutant, breed, read_mutants

RESULT = Path(__file__).resolve().parent / "results" / "zoo.json"
ORDER = ("S0", "S1", "S3", "S2", "S7", "S4", "S5", "S6")
MARKS = {"pass": ".", "fail": "FAIL", "inconclusive": "?", "error": "ERR"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mutants", nargs="*", help="ids; all without any")
    parser.add_argument("--port", type=int, default=31310)
    parser.add_argument("--keep", action="store_true", help="add to the rows that are there")
    asked = parser.parse_args()
    known = read_mutants("0.5.18")
    rows = json.loads(RESULT.read_text())["rows"] if asked.keep and RESULT.exists() else []
    chosen = [known[name] for name in asked.mutants or known]
    rows = [row for row in rows if row["mutant"] not in {mutant.id for mutant in chosen}]
    print(f"{'mutant':26}{'expected':>9}  " + "".join(f"{name:>6}" for name in ORDER), flush=True)
    for mutant in chosen:
        row = try_mutant(mutant, asked.port)
        rows.append(row)
        print(format_row(row), flush=True)
        write(rows)
    wrong = [row["mutant"] for row in rows if not is_right(row)]
    print(f"{len(rows) - len(wrong)} of {len(rows)} caught by the expected check first", flush=True)
    for name in wrong:
        print(f"  not so: {name}: {next(r['summary'] for r in rows if r['mutant'] == name)}")
    return 1 if wrong else 0


def try_mutant(mutant: Mutant, port: int) -> dict[str, Any]:
    environment, _ = prepare(mutant.release)
    # On the install's file system, so that the unchanged files can be links.
    with tempfile.TemporaryDirectory(prefix=".zoo-", dir=environment.python.parents[2]) as folder:
        tree = breed(mutant, environment.package, Path(folder))
        began = time.monotonic()
        try:
            with serve(mutant.release, port, tree / "work", tree) as server:
                ready_s = time.monotonic() - began
                result = smoke(server)
        except SpecopsError as error:
            return describe(mutant, {"verdict": "error", "checks": [], "summary": str(error)}, 0.0)
        return describe(mutant, result, ready_s)


def describe(mutant: Mutant, result: dict[str, Any], ready_s: float) -> dict[str, Any]:
    checks = result["checks"]
    failing = next((check for check in checks if check["verdict"] != "pass"), None)
    return {
        "mutant": mutant.id,
        "release": mutant.release,
        "expected_check": mutant.first,
        "first_failing_check": failing["id"] if failing else None,
        "verdict": result["verdict"],
        "first_verdict": failing["verdict"] if failing else None,
        "summary": failing["summary"] if failing else result.get("summary", ""),
        "checks": {check["id"]: check["verdict"] for check in checks},
        "seconds": {check["id"]: check["seconds"] for check in checks},
        "smoke_s": round(sum(check["seconds"] for check in checks), 1),
        "ready_s": round(ready_s, 1),
    }


def is_right(row: dict[str, Any]) -> bool:
    return (row["first_verdict"], row["first_failing_check"]) == ("fail", row["expected_check"])


def format_row(row: dict[str, Any]) -> str:
    cells = "".join(f"{MARKS.get(row['checks'].get(name, ''), '')!s:>6}" for name in ORDER)
    note = "" if is_right(row) else f"  <- {row['summary']}"
    return f"{row['mutant']:26}{row['expected_check']:>9}  {cells}  {row['smoke_s']:5.1f} s{note}"


def write(rows: list[dict[str, Any]]) -> None:
    times = sorted(row["smoke_s"] for row in rows)
    RESULT.parent.mkdir(exist_ok=True)
    whole = {
        "name": "zoo",
        "date": datetime.now(UTC).date().isoformat(),
        "command": "make zoo",
        "machine": {"cpus": os.cpu_count(), "gpu": "none"},
        "versions": {"specops": specops.__version__, "sglang": rows[-1]["release"]},
        "rows": rows,
        "summary": {
            "mutants": len(rows),
            "caught_first_as_expected": sum(is_right(row) for row in rows),
            "passed": sum(row["verdict"] == "pass" for row in rows),
            "smoke_s_median": times[len(times) // 2],
            "smoke_s_max": times[-1],
        },
    }
    RESULT.write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
