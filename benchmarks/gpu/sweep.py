"""specops' own sweep on a GPU: `python3 -m benchmarks.gpu.sweep --site S --models M ...`.

The load generator of the product, as the agent starts it, against the 8B shape without weights. Two servers
share the card and one is at work at a time: the unmodified install without speculation, and the gated one,
whose arms always-on and gated are one load by live control. They take turns, --rounds times. Writes
OUT/sweep.jsonl, an event a line, and prints the table's lines as they come; `--record FILE...` makes
results/sweep_gpu_<release>.json of such files, here.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import specops
from benchmarks.gpu.gate import ALWAYS, RELEASE, SHARED, SPEC, make_tree, numbers
from benchmarks.gpu.serving import Server, common, serve

RESULTS = Path(__file__).resolve().parents[1] / "results"
LEVELS = (1, 2, 5, 10, 30, 70, 100, 250)
RUNNING = 256
BUDGET_S = 600
ACCEPTED = "3"
ARMS: dict[str, dict[str, int | None]] = {
    "no-spec": {"no-spec": None},
    "gated": {"always-on": ALWAYS, "gated": 0},
}
"""By the server that they run on, with the threshold that live control sets; `gated` has the asked one."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--release", default=RELEASE)
    parser.add_argument("--worker", choices=SPEC, default="v2")
    parser.add_argument("--threshold", type=int, default=30)
    parser.add_argument("--levels", type=numbers, default=LEVELS)
    parser.add_argument("--window", type=float, default=3.0, help="s of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=256, help="of a request")
    parser.add_argument("--pool", type=int, default=100_000, help="tokens that each server may hold")
    parser.add_argument("--stream-interval", type=int, default=1, help="tokens of a streamed chunk")
    parser.add_argument("--site", type=Path, help="folder that holds the pristine sglang/")
    parser.add_argument("--models", type=Path, help="target/ and draft/ without weights")
    parser.add_argument("--out", type=Path, default=Path("sweep-out"))
    parser.add_argument("--gpu", default="0")
    parser.add_argument("--port", type=int, default=33600)
    parser.add_argument("--record", type=Path, nargs="+", metavar="FILE")
    asked = parser.parse_args()
    if asked.record is not None:
        return record(asked.record, asked.release)
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "sweep.jsonl").unlink(missing_ok=True)
    with ExitStack() as stack:
        servers = start_both(asked, stack)
        for number in range(1, asked.rounds + 1):
            for stage, arms in ARMS.items():
                failed = visit(asked, number, servers[stage], arms)
                if failed:
                    return failed
    return 0


def start_both(asked: argparse.Namespace, stack: ExitStack) -> dict[str, Server]:
    """By stage. They load side by side."""
    env = {"CUDA_VISIBLE_DEVICES": asked.gpu, "SGLANG_SIMULATE_ACC_LEN": ACCEPTED}
    with ThreadPoolExecutor() as pool:
        begun = {
            stage: pool.submit(
                lambda stage, port: stack.enter_context(
                    serve(
                        stage,
                        asked.site,
                        make_tree(asked, stage),
                        arguments(asked, stage),
                        env if stage == "gated" else {"CUDA_VISIBLE_DEVICES": asked.gpu},
                        port,
                        asked.out,
                    )
                ),
                stage,
                asked.port + 1000 * number,
            )
            for number, stage in enumerate(ARMS)
        }
        servers = {stage: each.result() for stage, each in begun.items()}
    for stage, server in servers.items():
        print(f"{stage}: up in {server.ready_s:.0f} s", flush=True)
    return servers


def arguments(asked: argparse.Namespace, stage: str) -> list[str]:
    words = [*common(asked.release, RUNNING), "--model-path", str(asked.models / "target")]
    words += ["--load-format", "dummy", *SHARED, str(asked.pool)]
    words += ["--stream-interval", str(asked.stream_interval)]
    if stage == "no-spec":
        return words
    words += ["--speculative-algorithm", "EAGLE3"]
    words += ["--speculative-draft-model-path", str(asked.models / "draft")]
    for key, value in SPEC[asked.worker].items():
        words += [f"--speculative-{key}", str(value)]
    return [*words, "--speculative-disable-batch-threshold", str(asked.threshold)]


def spec_of(asked: argparse.Namespace, server: Server, arms: Mapping[str, int | None]) -> dict[str, Any]:
    """ARCHITECTURE, The sweep's child."""
    spec = SPEC[asked.worker] if None not in arms.values() else {}
    return {
        "url": server.url,
        "release": asked.release,
        "gate": "batch-gate" if spec else "none",
        "threshold": asked.threshold if spec else 1,
        "num_steps": spec.get("num-steps", 0),
        "topk": spec.get("eagle-topk", 1),
        "log": str(server.log),
        "token_gap_s": 60,
        "budget_s": BUDGET_S,
        "graphs": True,
        "shared": False,
        "levels": list(asked.levels),
        "arms": [{"name": name, "threshold": threshold} for name, threshold in arms.items()],
        "repeats": 1,
        "window_s": asked.window,
        "max_tokens": asked.tokens,
        "prompt_tokens": [64, 64],
        "max_running": RUNNING,
    }


def visit(asked: argparse.Namespace, number: int, server: Server, arms: Mapping[str, int | None]) -> int:
    """All levels of one server's arms, once; exit status of the child."""
    from specops.connect.payload import agent_zip

    packed = asked.out / "agent-sweep.zip"
    packed.write_bytes(agent_zip())
    given = {name: asked.threshold if name == "gated" else value for name, value in arms.items()}
    with (
        open(asked.out / "sweep.jsonl", "ab") as out,
        subprocess.Popen(
            [sys.executable, "-B", str(packed), "child-sweep"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(asked.site)},
        ) as child,
    ):
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(spec_of(asked, server, given)).encode())
        child.stdin.close()
        for line in child.stdout:
            event = {**json.loads(line), "round": number, "stream_interval": asked.stream_interval}
            out.write(json.dumps(event).encode() + b"\n")
            if said := event.get("line") or event.get("message"):
                print(said, flush=True)
    packed.unlink()
    return int(child.returncode or 0)


def record(paths: Sequence[Path], release: str) -> int:
    rows: list[dict[str, Any]] = []
    for path in paths:
        earlier = max((row["round"] for row in rows), default=0)
        for event in map(json.loads, path.read_text().splitlines()):
            if event["event"] == "level":
                rows.append({**event, "round": event["round"] + earlier})
    name = f"sweep_gpu_{release}"
    whole = {
        "name": name,
        "date": datetime.now(UTC).date().isoformat(),
        "command": "python3 -m benchmarks.gpu.sweep --release … --stream-interval … (on the GPU host)",
        "machine": {"cpus": 16, "gpu": "NVIDIA H200"},
        "versions": {"specops": specops.__version__, "sglang": release, "torch": "2.11.0+cu130"},
        "rows": rows,
        "summary": summary(rows),
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(whole, indent=1) + "\n")
    print(json.dumps(whole["summary"], indent=1))
    return 0


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A line for each chunk size and level: an arm's tok/s (median, least, most), its share of no-spec's."""
    keys = sorted({(row["stream_interval"], row["C"]) for row in rows})
    return {
        "by_level": [summarize_level(rows, *key) for key in keys],
        "failed": sum(row["requests"] - row["ok"] for row in rows),
        "taints": dict(Counter(taint for row in rows for taint in row["taints"])),
    }


def summarize_level(rows: list[dict[str, Any]], interval: int, level: int) -> dict[str, Any]:
    here = [row for row in rows if (row["stream_interval"], row["C"]) == (interval, level)]
    line: dict[str, Any] = {"interval": interval, "C": level, "repeats": len({row["round"] for row in here})}
    for arm in dict.fromkeys(row["arm"] for row in here):
        found = [row["throughput"] for row in here if row["arm"] == arm]
        line[arm] = [round(value) for value in (statistics.median(found), min(found), max(found))]
        shares = [
            row["throughput"] / base["throughput"]
            for row in here
            for base in here
            if row["arm"] == arm and (base["arm"], base["round"]) == ("no-spec", row["round"])
        ]
        line[f"{arm}_of_no_spec"] = round(statistics.median(shares), 3) if shares else None
    gated = [row for row in here if row["arm"] == "gated"]
    for key in ("ttft", "itl"):
        values = [1e3 * row[key]["p50"] for row in gated]
        line[f"gated_{key}_p50_ms"] = round(statistics.median(values), 1) if values else None
    line["client_cpu"] = max(round(row["client"]["cpu_share"], 2) for row in here)
    return line


if __name__ == "__main__":
    raise SystemExit(main())
