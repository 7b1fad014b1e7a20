"""S0 to S7 on a healthy server with the batch-gate patch, alone: `python -m benchmarks.gate_smoke RELEASE`.

`--keep` puts what it found into the row that `benchmarks.gate_proof` has of the same case: a row from before
its smoke test was run gets one without its soak being run again.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import gate_labs
from benchmarks.gate_proof import BAD_LINES, PATCH, Bench, Case, Load, cases_of, keep, make_models, run_smoke
from benchmarks.gate_rows import kept_row, problems
from specops.config.patch import load_patch
from specops.config.proof import load_proofs, patch_bytes
from specops.lab import older

CHECKS = ("S0", "S1", "S3", "S2", "S4", "S5", "S7", "S6")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("release")
    parser.add_argument("--trees", action="store_true", help="topk 4, 5 steps, 16 draft tokens")
    parser.add_argument("--keep", action="store_true", help="put it into the row of the case's proof")
    parser.add_argument("--port", type=int, default=31330)
    asked = parser.parse_args()
    case = next(each for each in cases_of(asked.release) if (each.topk > 1) == asked.trees)
    row = proved_row(case) if asked.keep else None
    if asked.keep and row is None:
        parser.error(f"{case.name} has no proof of today's bytes to add to: python -m benchmarks.gate_proof")
    lab = gate_labs.prepare(asked.release, older.default_home())
    with tempfile.TemporaryDirectory(prefix="specops-gate-smoke-") as folder:
        work = Path(folder)
        models = make_models(lab, work / "models")
        bench = Bench(lab=lab, case=case, models=models, work=work, port=asked.port, load=Load(smoke=CHECKS))
        found = smoke_alone(bench)
    for check, verdict in found["verdicts"].items():
        print(f"{check} {verdict:12} {found['said'][check]}", flush=True)
    wrong = problems({**row, "smoke": found}) if row else []
    if row:
        keep(lab, case, {**row, "smoke": found}, wrong)
        print(case.name, "kept" if not wrong else f"kept as NOT proved: {'; '.join(wrong)}")
    return 1 if wrong or set(found["verdicts"].values()) != {"pass"} else 0


def proved_row(case: Case) -> dict[str, Any] | None:
    """The case's row, where it proved the bytes that the patch has today."""
    now = patch_bytes(load_patch(PATCH), case.release)
    held = {(p.release, p.worker, p.topk, p.bytes) for p in load_proofs(PATCH) if p.level == "cpu"}
    proved = (case.release, case.worker, case.topk, now) in held
    return kept_row(case.release, case.worker, case.topk) if proved else None


def smoke_alone(bench: Bench) -> dict[str, Any]:
    """As in a proof, on a server that did nothing before."""
    with bench.serve("gated", gated=True):
        found = run_smoke(bench, 0)
    log = (bench.work / "gated.log").read_text(encoding="utf-8", errors="replace")
    served = log.split("fired up and ready", 1)[-1]
    return {**found, "leak_lines": len(BAD_LINES.findall(served)), "own_launch": True}


if __name__ == "__main__":
    raise SystemExit(main())
