"""Every mutant of tests/zoo on a real server, judged by the smoke test: `python -m benchmarks.zoo [ID ...]`.

`--release` takes another part of the zoo than that of 0.5.18; `healthy` as an ID is the unbroken server.
Prints a matrix mutant x check. Exit 0 only if each mutant ends in a fail whose first failing check is the one
that tests/zoo/expected.yaml named, with nothing but passes before it.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import specops
from benchmarks.gated_server import V1, GatedServer, patched_files, prepare, serve, serve_patched, smoke
from specops.errors import SpecopsError
from specops.lab.older import OLDER, default_home
from specops.lab.older import prepare as prepare_older
from tests.zoo.mutants import HEALTHY, Mutant, breed, overlay, read_mutants

RESULTS = Path(__file__).resolve().parent / "results"
ORDER = ("S0", "S1", "S3", "S2", "S7", "S4", "S5", "S6")
MARKS = {"pass": ".", "fail": "FAIL", "inconclusive": "?", "error": "ERR"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mutants", nargs="*", metavar="ID", help="all without any")
    parser.add_argument("--release", default="0.5.18")
    parser.add_argument("--out", type=Path, default=RESULTS / "zoo.json")
    parser.add_argument("--port", type=int, default=31310)
    parser.add_argument("--keep", action="store_true", help="add to the rows that are there")
    asked = parser.parse_args()
    known = read_mutants(asked.release)
    chosen = [known[name] for name in asked.mutants or known if name != HEALTHY]
    if HEALTHY in asked.mutants:
        chosen.insert(0, Mutant(id=HEALTHY, release=asked.release, first="", what="the unbroken server"))
    rows = json.loads(asked.out.read_text())["rows"] if asked.keep and asked.out.exists() else []
    again = {(asked.release, mutant.id) for mutant in chosen}
    rows = [row for row in rows if (row["release"], row["mutant"]) not in again]
    print(f"{'mutant':26}{'expected':>9}  " + "".join(f"{name:>6}" for name in ORDER), flush=True)
    for mutant in chosen:
        row = try_mutant(mutant, asked.port)
        rows.append(row)
        print(format_row(row), flush=True)
        write(rows, asked.out)
    wrong = [row["mutant"] for row in rows if not is_right(row)]
    print(f"{len(rows) - len(wrong)} of {len(rows)} caught by the expected check first", flush=True)
    for name in wrong:
        print(f"  not so: {name}: {next(r['summary'] for r in rows if r['mutant'] == name)}")
    return 1 if wrong else 0


def try_mutant(mutant: Mutant, port: int, checks: Sequence[str] | None = None) -> dict[str, Any]:
    """The mutant's row: one server, one smoke test, of all checks unless some are named."""
    is_older = mutant.release in OLDER
    # On the install's file system, so that the unchanged files can be links.
    home = default_home() if is_older else prepare(mutant.release)[0].python.parents[2]
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".zoo-", dir=home) as folder:
        began = time.monotonic()
        try:
            with (serve_older_mutant if is_older else serve_mutant)(mutant, port, Path(folder)) as server:
                ready_s = time.monotonic() - began
                result = smoke(server, checks=checks and list(checks))
        except SpecopsError as error:
            return describe(mutant, {"verdict": "error", "checks": [], "summary": str(error)}, 0.0)
        return describe(mutant, result, ready_s)


@contextmanager
def serve_mutant(mutant: Mutant, port: int, folder: Path) -> Iterator[GatedServer]:
    tree = breed(mutant, prepare(mutant.release)[0].package, folder)
    with serve(mutant.release, port, tree / "work", tree) as server:
        yield server


@contextmanager
def serve_older_mutant(mutant: Mutant, port: int, folder: Path) -> Iterator[GatedServer]:
    install = prepare_older(mutant.release, default_home()).package
    patched = overlay(install, folder / "patched", patched_files(mutant.release))
    tree = breed(mutant, patched / "sglang", folder / "bred")
    with serve_patched(mutant.release, port, tree / "work", tree, V1) as server:
        yield server


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
    if row["mutant"] == HEALTHY:
        return bool(row["verdict"] == "pass")
    return (row["first_verdict"], row["first_failing_check"]) == ("fail", row["expected_check"])


def format_row(row: dict[str, Any]) -> str:
    cells = "".join(f"{MARKS.get(row['checks'].get(name, ''), '')!s:>6}" for name in ORDER)
    note = "" if is_right(row) else f"  <- {row['summary']}"
    return f"{row['mutant']:26}{row['expected_check']:>9}  {cells}  {row['smoke_s']:5.1f} s{note}"


def write(rows: list[dict[str, Any]], out: Path) -> None:
    out.parent.mkdir(exist_ok=True)
    whole = {
        "name": out.stem,
        "date": datetime.now(UTC).date().isoformat(),
        "command": "make zoo",
        "machine": {"cpus": os.cpu_count(), "gpu": "none"},
        "versions": {
            "specops": specops.__version__,
            "sglang": ", ".join(sorted({row["release"] for row in rows})),
        },
        "rows": rows,
        "summary": summary(rows),
    }
    out.write_text(json.dumps(whole, indent=1) + "\n")


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    bred = [row for row in rows if row["mutant"] != HEALTHY]
    times = sorted(row["smoke_s"] for row in rows)
    return {
        "mutants": len(bred),
        "caught_first_as_expected": sum(is_right(row) for row in bred),
        "passed": sum(row["verdict"] == "pass" for row in bred),
        "smoke_s_median": times[len(times) // 2],
        "smoke_s_max": times[-1],
    }


if __name__ == "__main__":
    raise SystemExit(main())
