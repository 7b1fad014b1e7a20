"""`python -m benchmarks.gpu.gate_record [--release R] [--rows FILE ...]`: results/gate_gpu_<release>.json.

New rows (as benchmarks.gpu.gate writes them) are added to those that are there; the summary is computed
from all of them: medians by worker, gate and level, and ratios with their range over launches and repeats.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import specops
from benchmarks.gpu.gate import FILES, RELEASE, SPEC
from benchmarks.gpu.intervals import launch_noise, ratio_interval
from specops.config.patch import load_patch
from specops.config.proof import Proof, keep_proof, patch_bytes

RESULTS = Path(__file__).resolve().parents[1] / "results"
ENOUGH = 3
UNPATCHED = ("no-spec", "always-on", "native")
PATCHED = ("gated", "tuned", "always-open", "always-closed")
Row = dict[str, Any]


def gate_version(files: Iterable[Path]) -> str:
    """8 hex digits that name the gate's code."""
    whole = hashlib.sha256()
    for file in sorted(files):
        whole.update(file.read_bytes())
    return whole.hexdigest()[:8]


def speeds(rows: list[Row], worker: str, arm: str, level: int, gate: str | None = None) -> list[float]:
    return [
        row["tok_s"]
        for row in rows
        if (row["worker"], row["arm"], row["C"]) == (worker, arm, level)
        and row["ok"] == row["asked"]
        # the first wave of a level compiles and fills caches; a window begins after that
        and (row["repeat"] > 0 or row.get("window_s"))
        and (gate is None or row["batch_gate"] == gate)
    ]


def summary(rows: list[Row]) -> Row:
    return {"by_level": summarize(rows)}


def summarize(rows: list[Row]) -> list[Row]:
    """A line a worker, gate and level: medians in tok/s, and our arms against the plain ones."""
    table = []
    for worker in sorted({row["worker"] for row in rows}):
        gates = list(
            dict.fromkeys(r["batch_gate"] for r in rows if r["worker"] == worker and r["batch_gate"])
        )
        for gate in gates:
            for level in sorted({row["C"] for row in rows}):
                line = summarize_level(rows, worker, gate, level)
                if line is not None:
                    table.append(line)
    return table


def summarize_level(rows: list[Row], worker: str, gate: str, level: int) -> Row | None:
    found = {arm: speeds(rows, worker, arm, level) for arm in UNPATCHED}
    found |= {arm: speeds(rows, worker, arm, level, gate) for arm in PATCHED}
    if not (found["no-spec"] and found["always-on"] and found["gated"]):
        return None
    line: Row = {"worker": worker, "batch_gate": gate, "C": level}
    line |= {arm.replace("-", "_"): round(statistics.median(each), 1) for arm, each in found.items() if each}
    for arm in ("native", *PATCHED):
        if found[arm]:
            plain = plays_plain(rows, worker, arm, level)
            line[f"{arm}_to_its_arm"] = ratio(found[arm], found["no-spec" if plain else "always-on"])
            if interval := ratio_interval(found[arm], found["no-spec" if plain else "always-on"]):
                line[f"{arm}_to_its_arm_95"] = interval
    line["noise"] = [ratio(found[arm], found[arm]) for arm in ("no-spec", "always-on")]
    line["launch_noise"] = [
        launch_noise(list(by_launch(rows, worker, arm, level))) for arm in ("no-spec", "always-on")
    ]
    return line


def plays_plain(rows: list[Row], worker: str, arm: str, level: int) -> bool:
    """Whether this arm's gate is closed at a level; SGLang's own has the threshold of ours."""
    names = ("gated",) if arm == "native" else (arm,)
    threshold = next(r["threshold"] for r in rows if r["worker"] == worker and r["arm"] in names)
    return bool(level > threshold)


def by_launch(rows: list[Row], worker: str, arm: str, level: int) -> Iterable[list[float]]:
    mine = [row for row in rows if row["arm"] == arm]
    for launch in sorted({(row["call"], row["launch"]) for row in mine}):
        yield speeds([row for row in mine if (row["call"], row["launch"]) == launch], worker, arm, level)


def ratio(ours: list[float], theirs: list[float]) -> list[float]:
    """[median, lowest, highest]: of the medians, and of the extremes against the other's median."""
    middle = statistics.median(theirs)
    return [round(value / middle, 3) for value in (statistics.median(ours), min(ours), max(ours))]


def find_proofs(rows: list[Row], gate: str, release: str) -> list[Proof]:
    """One for each worker whose waves were all answered with this code, closed steps counted."""
    patch, found = load_patch(FILES), []
    for worker, draft in SPEC.items():
        ran = [row for row in rows if (row["worker"], row["batch_gate"]) == (worker, gate)]
        plain = sum(closed_steps(row) for row in ran)
        if plain and all(row["ok"] == row["asked"] for row in ran):
            found.append(
                Proof(
                    release=release,
                    worker=worker,
                    topk=draft["eagle-topk"],
                    level="gpu",
                    bytes=patch_bytes(patch, release),
                    date=datetime.now(UTC).date().isoformat(),
                    closed_steps=plain,
                    to_native=to_native(rows, worker, gate),
                )
            )
    return found


def to_native(rows: list[Row], worker: str, gate: str) -> float:
    """The lowest over the levels above T of our closed tok/s to SGLang's own gate's; 0 without its rows, and
    below three of each at every level: deploys choose by this figure."""
    closed = [line for line in summarize(rows) if (line["worker"], line["batch_gate"]) == (worker, gate)]
    ratios = [
        line["gated"] / line["native"]
        for line in closed
        if "native" in line and plays_plain(rows, worker, "gated", line["C"])
    ]
    seen = [
        len(speeds(rows, worker, arm, line["C"], gate if arm == "gated" else None))
        for line in closed
        for arm in ("gated", "native")
        if plays_plain(rows, worker, "gated", line["C"])
    ]
    if min(seen, default=0) < ENOUGH:
        return 0.0
    return round(min(ratios), 2) if ratios else 0.0


def closed_steps(row: Row) -> int:
    """Of a window as the gate counted them; of a wave above T, all that its tokens took."""
    if "closed_steps" in row:
        return int(row["closed_steps"])
    closed = row["C"] > row["threshold"] and row["tokens_per_verify"] < 1.01
    return int(row["tok_s"] * row["wall_s"] / row["C"]) if closed else 0


def show(table: list[Row]) -> None:
    arms = ("no_spec", "always_on", "native", "gated", "tuned", "always_closed")
    print("worker gate        C" + "".join(f"{arm:>14}" for arm in arms) + "   gated/its arm")
    for line in table:
        speed = "".join(f"{line.get(arm) or float('nan'):14.0f}" for arm in arms)
        span = line.get("gated_to_its_arm_95") or line["gated_to_its_arm"]
        print(f"{line['worker']:6} {line['batch_gate']} {line['C']:4d}{speed}   {span}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, nargs="*", default=[])
    parser.add_argument("--call", default="", help="names the run on the machine that these rows are of")
    parser.add_argument("--gate", help="8 hex digits of the gate's files; of those that are here without it")
    parser.add_argument("--release", default=RELEASE)
    asked = parser.parse_args()
    result = RESULTS / f"gate_gpu_{asked.release}.json"
    rows: list[Row] = json.loads(result.read_text())["rows"] if result.exists() else []
    gate = asked.gate or gate_version((FILES / "files").glob("*.py"))
    for file in asked.rows:
        for text in file.read_text().splitlines():
            row = json.loads(text)
            patched = row["arm"] not in UNPATCHED
            rows.append({"call": asked.call, "batch_gate": gate if patched else None, **row})
    table = summarize(rows)
    whole = {
        "name": f"gate_gpu_{asked.release}",
        "date": datetime.now(UTC).date().isoformat(),
        "command": "python3 -m benchmarks.gpu.gate v1|v2 no-spec always-on gated … (on the GPU host)",
        "machine": {"cpus": 32, "gpu": "NVIDIA H200"},
        "versions": {"specops": specops.__version__, "sglang": asked.release, "torch": "2.11.0+cu130"},
        "rows": rows,
        "summary": {"by_level": table},
    }
    result.write_text(json.dumps(whole, indent=1) + "\n")
    show(table)
    for proof in find_proofs(rows, gate_version((FILES / "files").glob("*.py")), asked.release):
        keep_proof(FILES, proof)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
