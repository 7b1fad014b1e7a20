"""specops' own sweep of one gated server on a GPU: `python3 -m benchmarks.gpu.sweep --site S --models M ...`.

The load generator of the product, as the agent starts it, against the 8B shape without weights: three arms in
one load by the gate's live control. `--url` measures a server that runs already. Writes OUT/sweep.jsonl, an
event a line, and prints the table's lines as they come; `--record FILE` makes
results/sweep_gpu_<release>.json of such a file, here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import specops
from benchmarks.gpu.gate import ALWAYS, RELEASE, SHARED, SPEC, make_tree, numbers
from benchmarks.gpu.serving import common, serve

RESULTS = Path(__file__).resolve().parents[1] / "results"
LEVELS = (1, 2, 5, 10, 30, 70, 100, 250)
RUNNING = 256
BUDGET_S = 600
ACCEPTED = "3"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--release", default=RELEASE)
    parser.add_argument("--worker", choices=SPEC, default="v2")
    parser.add_argument("--threshold", type=int, default=30)
    parser.add_argument("--levels", type=numbers, default=LEVELS)
    parser.add_argument("--window", type=float, default=3.0, help="s of each measurement")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=512, help="of a request")
    parser.add_argument("--pool", type=int, default=250_000, help="tokens that the server may hold")
    parser.add_argument("--site", type=Path, help="folder that holds the pristine sglang/")
    parser.add_argument("--models", type=Path, help="target/ and draft/ without weights")
    parser.add_argument("--url", help="of a gated server that runs already")
    parser.add_argument("--log", type=Path, help="its log")
    parser.add_argument("--not-before", type=Path, metavar="FILE", help="begin when it is there")
    parser.add_argument("--out", type=Path, default=Path("sweep-out"))
    parser.add_argument("--gpu", default="0")
    parser.add_argument("--port", type=int, default=33600)
    parser.add_argument("--record", type=Path, metavar="FILE")
    asked = parser.parse_args()
    if asked.record is not None:
        return record(asked.record, asked.release)
    asked.out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        url, log = asked.url, asked.log
        if url is None:
            env = {"CUDA_VISIBLE_DEVICES": asked.gpu, "SGLANG_SIMULATE_ACC_LEN": ACCEPTED}
            server = stack.enter_context(
                serve(
                    "sweep",
                    asked.site,
                    make_tree(asked, "gated"),
                    arguments(asked),
                    env,
                    asked.port,
                    asked.out,
                )
            )
            url, log = server.url, server.log
            print(f"up in {server.ready_s:.0f} s", flush=True)
        while asked.not_before is not None and not asked.not_before.exists():
            time.sleep(0.5)
        return sweep(asked, url, log)


def arguments(asked: argparse.Namespace) -> list[str]:
    words = [*common(asked.release, RUNNING), "--model-path", str(asked.models / "target")]
    words += ["--load-format", "dummy", *SHARED, str(asked.pool), "--stream-interval", "1"]
    words += ["--speculative-algorithm", "EAGLE3"]
    words += ["--speculative-draft-model-path", str(asked.models / "draft")]
    for key, value in SPEC[asked.worker].items():
        words += [f"--speculative-{key}", str(value)]
    return [*words, "--speculative-disable-batch-threshold", str(asked.threshold)]


def spec_of(asked: argparse.Namespace, url: str, log: Path) -> dict[str, Any]:
    """ARCHITECTURE, The sweep's child."""
    arms = {"no-spec": 0, "always-on": ALWAYS, "gated": asked.threshold}
    return {
        "url": url,
        "release": asked.release,
        "gate": "batch-gate",
        "threshold": asked.threshold,
        "num_steps": SPEC[asked.worker]["num-steps"],
        "topk": SPEC[asked.worker]["eagle-topk"],
        "log": str(log),
        "token_gap_s": 60,
        "budget_s": BUDGET_S,
        "graphs": True,
        "shared": False,
        "levels": list(asked.levels),
        "arms": [{"name": name, "threshold": threshold} for name, threshold in arms.items()],
        "repeats": asked.repeats,
        "window_s": asked.window,
        "max_tokens": asked.tokens,
        "prompt_tokens": [64, 64],
        "max_running": RUNNING,
    }


def sweep(asked: argparse.Namespace, url: str, log: Path) -> int:
    from specops.connect.payload import agent_zip

    packed = asked.out / "agent-sweep.zip"
    packed.write_bytes(agent_zip())
    env = {**os.environ, "PYTHONPATH": str(asked.site)} if asked.site else dict(os.environ)
    with (
        open(asked.out / "sweep.jsonl", "wb") as out,
        subprocess.Popen(
            [sys.executable, "-B", str(packed), "child-sweep"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env,
        ) as child,
    ):  # fmt: skip
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(spec_of(asked, url, log)).encode())
        child.stdin.close()
        for line in child.stdout:
            out.write(line)
            out.flush()
            event = json.loads(line)
            if said := event.get("line") or event.get("message"):
                print(said, flush=True)
    packed.unlink()
    return int(child.returncode or 0)


def record(path: Path, release: str) -> int:
    rows = [event for event in map(json.loads, path.read_text().splitlines()) if event["event"] == "level"]
    name = f"sweep_gpu_{release}"
    whole = {
        "name": name,
        "date": datetime.now(UTC).date().isoformat(),
        "command": "python3 -m benchmarks.gpu.sweep --window 3 --tokens 256 … (on the GPU host)",
        "machine": {"cpus": 16, "gpu": "NVIDIA H200"},
        "versions": {"specops": specops.__version__, "sglang": release, "torch": "2.11.0+cu130"},
        "rows": rows,
        "summary": summary(rows),
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(whole, indent=1) + "\n")
    print(json.dumps(whole["summary"], indent=1))
    return 0


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """tok/s of each arm by level, TTFT and ITL of the gated one in ms, and what may be doubted."""
    table = []
    for level in sorted({row["C"] for row in rows}):
        here = {row["arm"]: row for row in rows if row["C"] == level}
        line: dict[str, Any] = {"C": level, "requests": sum(row["requests"] for row in here.values())}
        line |= {arm: round(row["throughput"], 1) for arm, row in here.items()}
        for key in ("ttft", "itl"):
            line[f"gated_{key}_p50_ms"] = round(1e3 * here["gated"][key]["p50"], 1)
        line["batch"] = [row["batch"]["median"] for row in here.values()]
        line["client_cpu"] = max(round(row["client"]["cpu_share"], 2) for row in here.values())
        line["taints"] = sorted({taint for row in here.values() for taint in row["taints"]})
        table.append(line)
    return {"by_level": table, "failed": sum(row["requests"] - row["ok"] for row in rows)}


if __name__ == "__main__":
    raise SystemExit(main())
