"""`python -m benchmarks.tp_cpu [--tp 2]`: the tensor-parallel run on this machine's CPU, over gloo.

SGLang 0.5.12.post1 with the lab's kernels, its install patched in place by the deploy and taken back.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path

from benchmarks.gate_proof import make_models
from benchmarks.tp_box import Box
from benchmarks.tp_record import Record, table
from benchmarks.tp_run import common_arguments, run
from specops.lab import older

ROOT = Path(__file__).resolve().parents[1]
RELEASE = "0.5.12.post1"
PAIR_HEADS = 2

SERVER = {
    "mem_fraction_static": 0.3,
    "max_running_requests": 16,
    "args": {
        "device": "cpu",
        "dtype": "float32",
        "attention-backend": "triton",
        "triton-attention-num-kv-splits": 1,
        "disable-cuda-graph": True,
        "max-total-tokens": 20000,
        "sleep-on-idle": True,
        "skip-server-warmup": True,
    },
}


def bind_cores(tp: int) -> str:
    """One core a rank, the ranks in turn over the cores there are."""
    cores = sorted(os.sched_getaffinity(0))
    return "|".join(str(cores[rank % len(cores)]) for rank in range(tp))


def models_for(lab: older.OlderLab, tp: int, folder: Path) -> Path:
    """The lab's pair; for more ranks than it has heads, the same pair with heads that add nothing."""
    pair = make_models(lab, folder / "pair")
    if tp <= PAIR_HEADS:
        return pair
    wide = folder / f"pair-{tp}-heads"
    if not (wide / "draft" / "model.safetensors").is_file():
        program = ROOT / "benchmarks" / "widen_pair.py"
        subprocess.run([str(lab.python), str(program), str(pair), str(wide), str(tp)], check=True)
    return wide


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tp", type=int, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "tp_cpu.json")
    parser.add_argument("--home", type=Path, default=older.default_home())
    parser.add_argument("--budget-s", type=float, default=3600)
    parser.add_argument("--threshold", type=int, default=5)
    parser.add_argument("--checks", default="S0,S3,S2,S5,S6")
    parser.add_argument("--log-interval", type=int, default=10, help="steps; fewer make a shorter proof")
    parser.add_argument("--no-kill", action="store_true", help="one deploy only, and no rank is killed")
    common_arguments(parser)
    parser.set_defaults(levels=[1, 5, 6], tokens=16)
    options = parser.parse_args()
    lab = older.prepare(RELEASE, options.home)
    work = options.work / f"tp{options.tp}"
    env = older.server_environment(lab)
    del env["PYTHONPATH"]
    box = Box(
        backend="gloo",
        tp=options.tp,
        release=RELEASE,
        python=lab.python,
        package=lab.package,
        models=models_for(lab, options.tp, options.work / "models"),
        port=options.port,
        work=work,
        env={**env, "SGLANG_CPU_OMP_THREADS_BIND": bind_cores(options.tp)},
        server=SERVER,
        ready={"progress_s": 600, "cap_s": 1800},
        budget_s=900,
        threshold=options.threshold,
        checks=tuple(options.checks.split(",")),
        log_interval=options.log_interval,
    )
    record = Record(
        path=options.out,
        box=box,
        command=f"python -m benchmarks.tp_cpu --tp {options.tp}",
        machine={"cpus": os.cpu_count(), "gpu": "none"},
        budget_s=options.budget_s,
        run="arms" if options.no_kill else "death",
    )
    whole = run(record, levels=options.levels, tokens=options.tokens, limit_s=2400, kill=not options.no_kill)
    print("\n".join(table(record.rows, box.tp)), flush=True)
    return 0 if whole else 1


if __name__ == "__main__":
    raise SystemExit(main())
