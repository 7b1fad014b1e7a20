"""Rebuilds the batch gate's matrix from the wheels: `python -m benchmarks.patch_matrix [RELEASE ...]`.

Writes results/patch_matrix.json and the matrix in README.md. `--pin` first pins patch.yaml to the wheels'
bytes and to what its diffs make of them. `--keep` checks only the releases named, and those that are new
in it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import specops
from benchmarks.gate_rows import today
from specops.config.patch import Patch, load_patch
from specops.config.proof import load_proofs
from specops.lab.matrix import NOT_RUN, Cell, Checked, build_matrix, cells_of
from specops.lab.wheels import default_home, unpack_release
from specops.steps.pin import pin

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "patch_matrix.json"
README = ROOT / "README.md"
BEGIN, END = "<!-- patch-matrix:begin -->", "<!-- patch-matrix:end -->"
COLUMNS = {("v1", 1): "v1, topk 1", ("v1", 4): "v1, topk 4", ("v2", 1): "v2, topk 1", ("v2", 4): "v2, topk 4"}
PROVED = {"gpu": "GPU", "cpu": "CPU", "applies only": "applies only", "none": "does not apply"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("releases", nargs="*", metavar="RELEASE")
    parser.add_argument("--patch", type=Path, default=ROOT / "patches" / "batch-gate")
    parser.add_argument("--home", type=Path, default=default_home())
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--keep", action="store_true", help="what was checked of the other releases")
    options = parser.parse_args()
    patch = load_patch(options.patch)
    if options.pin:
        pin_all(patch, options.home)
        patch = load_patch(options.patch)
    releases = list(patch.releases) if options.keep or not options.releases else options.releases
    proofs = load_proofs(patch.folder)
    known = checked_before() if options.keep else {}
    cells = []
    for release in releases:
        if release in known and release not in options.releases:
            cells += cells_of(patch, proofs, release, known[release])
        else:
            cells += build_matrix(patch, proofs, [release], options.home, told)
    if options.keep or not options.releases:
        RESULT.write_text(json.dumps(result(cells), indent=1) + "\n", encoding="utf-8")
        README.write_text(with_section(README.read_text(encoding="utf-8"), cells), encoding="utf-8")
    return 0 if all(cell.applies and cell.imports != "no" and cell.flags != "no" for cell in cells) else 1


def pin_all(patch: Patch, home: Path) -> None:
    for release in patch.releases:
        root = unpack_release(release, home) / "sglang"

        def read(path: str, root: Path = root) -> bytes | None:
            return (root / path).read_bytes() if (root / path).is_file() else None

        print(f"{release}: {pin(patch.folder, release, read)} hashes changed", flush=True)


def checked_before() -> dict[str, Checked]:
    """By release, from the result file. What was wrong is in its reason."""
    found: dict[str, Checked] = {}
    for row in json.loads(RESULT.read_text(encoding="utf-8"))["rows"]:
        wrong = not row["applies"] or "no" in (row["imports"], row["flags"])
        found[row["release"]] = Checked(
            applies=row["applies"],
            imports=row["imports"],
            flags=row["flags"],
            problem=row["reason"] if wrong else "",
        )
    return found


def told(release: str, checked: Checked) -> None:
    print(release, "applies" if checked.applies else "DOES NOT APPLY", end="; ")
    print(f"imports: {checked.imports}; flags: {checked.flags}; {checked.problem}", flush=True)


def result(cells: list[Cell]) -> dict[str, Any]:
    rows = [asdict(cell) for cell in cells]
    return {
        "name": "patch_matrix",
        "date": today(),
        "command": "make patch-matrix",
        "machine": {"cpus": os.cpu_count(), "gpu": "none"},
        "versions": {"specops": specops.__version__, "pip": importlib.metadata.version("pip")},
        "rows": rows,
        "summary": summary(rows),
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "releases": len({row["release"] for row in rows}),
        "applies": sum(row["applies"] for row in rows),
        "imports": dict(Counter(row["imports"] for row in rows)),
        "proof": dict(Counter(row["proof"] for row in rows)),
    }


def with_section(text: str, cells: Iterable[Cell]) -> str:
    """The README with the matrix between its markers."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{section(list(cells))}{END}{tail}"


def section(cells: list[Cell]) -> str:
    """A line a release, a column for each worker and kind of draft; what stopped a run is told below."""
    at = {(cell.release, cell.worker, cell.topk): cell for cell in cells}
    lines = [f"| SGLang | {' | '.join(COLUMNS.values())} |", "|---|" + "---|" * len(COLUMNS)]
    reasons: dict[str, list[str]] = {}
    for release in dict.fromkeys(cell.release for cell in cells):
        words = []
        for way in COLUMNS:
            cell = at.get((release, *way))
            words.append(PROVED[cell.proof] if cell else "-")
            if cell and cell.proof in ("applies only", "none") and cell.reason not in ("", NOT_RUN):
                reasons.setdefault(cell.reason, []).append(f"{release} ({COLUMNS[way]})")
        lines.append(f"| {release} | {' | '.join(words)} |")
    notes = [f"- {', '.join(places)}: {why}" for why, places in reasons.items()]
    return "\n".join([*lines, *(["", *notes] if notes else []), ""])


if __name__ == "__main__":
    raise SystemExit(main())
