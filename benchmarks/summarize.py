"""Computes a result's summary again from its rows and prints it: `python -m benchmarks.summarize NAME ...`.

The `summary(rows)` of the script that measured is used, so that there is one way from rows to figures. Exit 1
where the file says something else than its rows do; `--write` corrects it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

Json = Any
RESULTS = Path(__file__).resolve().parent / "results"
MODULES = {
    "gate_gpu_": "benchmarks.gpu.gate_record",
    "gate_look_": "benchmarks.gpu.look_record",
    "gate_proof": "benchmarks.gate_rows",
    "loadgen_": "benchmarks.loadgen",
    "sweep_gpu_": "benchmarks.gpu.sweep",
    "tp_": "benchmarks.tp_record",
    "zoo_": "benchmarks.zoo",
}
"""Where the `summary` of a name is, if it is not in benchmarks.NAME. A key that ends in `_` is a prefix."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all without any")
    parser.add_argument("--write", action="store_true", help="put the summary into the file")
    asked = parser.parse_args()
    wrong = []
    for name in asked.names or sorted(path.stem for path in RESULTS.glob("*.json")):
        path = RESULTS / f"{name}.json"
        whole = json.loads(path.read_text(encoding="utf-8"))
        fresh = summarize(name, whole["rows"])
        if fresh != whole.get("summary"):
            wrong.append(name)
        print_table({**whole, "summary": fresh})
        if asked.write:
            path.write_text(json.dumps({**whole, "summary": fresh}, indent=1) + "\n", encoding="utf-8")
    for name in [] if asked.write else wrong:
        print(f"{name}: the summary in the file is another one")
    return 1 if wrong and not asked.write else 0


def module_of(name: str) -> str:
    prefix = next((key for key in MODULES if key.endswith("_") and name.startswith(key)), "")
    return MODULES.get(name) or MODULES.get(prefix) or f"benchmarks.{name}"


def summarize(name: str, rows: list[Json]) -> dict[str, Json]:
    """As JSON would give it back, so that it can be compared with a file's."""
    found: dict[str, Json] = json.loads(json.dumps(import_module(module_of(name)).summary(rows)))
    return found


def print_table(whole: Mapping[str, Json]) -> None:
    """Lists of objects as tables, everything else as a line a key."""
    print(f"\n{whole['name']}, {whole['date']}: {len(whole['rows'])} rows by `{whole['command']}`")
    for key, value in whole["summary"].items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            print("\n".join(format_rows(value)))
        else:
            print(f"  {key:28} {value}")


def format_rows(rows: Sequence[Mapping[str, Json]]) -> list[str]:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [columns, *([str(row.get(column, "")) for column in columns] for row in rows)]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    return ["  " + "  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in cells]


if __name__ == "__main__":
    raise SystemExit(main())
