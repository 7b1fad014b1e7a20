"""S0 to S7 on a healthy server with the batch-gate patch: `python -m benchmarks.gate_smoke RELEASE`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks import gate_labs
from benchmarks.gated_server import V2, V2_TREES, serve_patched, smoke
from specops.config.patch import load_patch
from specops.config.shipped import shipped
from specops.lab import older


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("release")
    parser.add_argument("--trees", action="store_true", help="topk 4, 5 steps, 16 draft tokens")
    parser.add_argument("--port", type=int, default=31330)
    asked = parser.parse_args()
    lab = gate_labs.prepare(asked.release, older.default_home())
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        tree = older.patched_copy(lab, load_patch(shipped("patches") / "batch-gate"), work / "patched")
        worker = V2_TREES if asked.trees else V2
        with serve_patched(asked.release, asked.port, work / "server", tree, worker) as server:
            result = smoke(server)
    for check in result["checks"]:
        print(f"{check['id']} {check['verdict']:12} {check['seconds']:6.1f} s  {check['summary']}")
    print(result["verdict"], result.get("summary", ""))
    return 0 if result["verdict"] == "pass" else 1


if __name__ == "__main__":
    raise SystemExit(main())
