"""`python -m benchmarks.gpu.look_record --release R FOLDER ...`: results/gate_look_<release>.json.

What benchmarks.gpu.side_by_side wrote besides its levels: traced steps, reopenings, loads; and the levels of
a trained pair (`--pair FOLDER`), whose acceptance shows stale draft state. And smoke tests that
benchmarks.gpu.gate ran. A folder is one run on the machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import specops

RESULTS = Path(__file__).resolve().parents[1] / "results"
KINDS = {"steps": "step", "reopen": "reopening", "loads": "load", "rows": "window"}
STEP_KEYS = ("step_ms", "gpu_ms", "idle_ms", "graph_launches", "kernel_launches", "copies", "syncs")
Row = dict[str, Any]


def read_rows(folder: Path, call: str, setting: str) -> Iterable[Row]:
    """Levels of a simulated acceptance are not read: gate_gpu_<release>.json has them."""
    for name, kind in KINDS.items():
        path = folder / f"{name}.jsonl"
        if not path.exists() or (kind == "window" and setting != "pair"):
            continue
        for line in path.read_text().splitlines():
            yield {"kind": kind, "call": call, "setting": setting, **json.loads(line)}
    for path in sorted(folder.glob("*-smoke.json")):
        told = json.loads(path.read_text())
        checks = [
            {key: each[key] for key in ("id", "verdict", "seconds", "summary")} for each in told["checks"]
        ]
        server = path.stem.removesuffix("-smoke")
        yield {"kind": "smoke", "call": call, "server": server, "verdict": told["verdict"], "checks": checks}


def summary(rows: list[Row]) -> Row:
    return {
        "steps": [{key: row[key] for key in ("arm", "C", *STEP_KEYS)} for row in of(rows, "step")],
        "reopenings": grouped(of(rows, "reopening"), ("setting", "gap", "arm"), reopening),
        "loads": grouped(of(rows, "load"), ("setting", "stage"), load),
        "pair": grouped(of(rows, "window"), ("C", "arm"), level),
        "smokes": [smoke(row) for row in of(rows, "smoke")],
    }


def of(rows: list[Row], kind: str) -> list[Row]:
    return [row for row in rows if row["kind"] == kind]


def grouped(rows: list[Row], keys: tuple[str, ...], tell: Any) -> list[Row]:
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return [{**dict(zip(keys, key, strict=True)), **tell(found[key])} for key in sorted(found)]


def spread(values: list[float]) -> list[float]:
    """[median, lowest, highest]."""
    return [round(value, 3) for value in (statistics.median(values), min(values), max(values))]


def reopening(rows: list[Row]) -> Row:
    """tok/s only of rows in which every survivor ran to the end of the window."""
    whole = [row["tok_s"] for row in rows if row["ok"] == row["C"]]
    caught = [each for row in rows for each in row["caught_up"]]
    return {
        "n": len(rows),
        "tok_s": spread(whole) if whole else None,
        "accept_length": spread([row["accept_length"] for row in rows]),
        "caught_up_tokens": spread([each[0] for each in caught]) if caught else None,
        "caught_up_ms": spread([each[2] for each in caught]) if caught else None,
    }


def load(rows: list[Row]) -> Row:
    return {"n": len(rows), "ready_s": spread([row["ready_s"] for row in rows])}


def level(rows: list[Row]) -> Row:
    told = [row["tok_s"] for row in rows if row["ok"] == row["asked"]]
    return {
        "n": len(told),
        "tok_s": spread(told) if told else None,
        "accept_length": spread([row["accept_length"] for row in rows]),
    }


def smoke(row: Row) -> Row:
    seconds = sum(check["seconds"] for check in row["checks"])
    told = {check["id"]: check["verdict"] for check in row["checks"]}
    return {"server": row["server"], "verdict": row["verdict"], "seconds": round(seconds, 1), **told}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--pair", type=Path, action="append", default=[], help="folders of a trained pair")
    parser.add_argument("--release", required=True)
    asked = parser.parse_args()
    rows = [row for each in asked.folders for row in read_rows(each, each.name, "simulated")]
    rows += [row for each in asked.pair for row in read_rows(each, each.name, "pair")]
    whole = {
        "name": f"gate_look_{asked.release}",
        "date": datetime.now(UTC).date().isoformat(),
        "command": "python3 -m benchmarks.gpu.side_by_side --profile 64,1 [--pair P] and benchmarks.gpu.gate",
        "machine": {"cpus": 32, "gpu": "NVIDIA H200"},
        "versions": {"specops": specops.__version__, "sglang": asked.release, "torch": "2.11.0+cu130"},
        "rows": rows,
        "summary": summary(rows),
    }
    (RESULTS / f"gate_look_{asked.release}.json").write_text(json.dumps(whole, indent=1) + "\n")
    print(json.dumps(whole["summary"], indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
