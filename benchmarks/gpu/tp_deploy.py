"""The tensor-parallel run on a host with several GPUs; tp_deploy.sh prepares the host and calls this."""

from __future__ import annotations

import argparse
import os
import subprocess
import tarfile
from pathlib import Path

from benchmarks.tp_box import Box
from benchmarks.tp_record import Record, table
from benchmarks.tp_run import common_arguments, measure_plain, run
from specops.remote.facts import read_version
from specops.remote.gpus import read_gpus

PASSED_ON = ("CUDA", "NVIDIA", "NCCL", "NVSHMEM", "TORCH", "TRITON", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CC")
"""Variables of this shell, by how their names begin, that the server gets as well."""
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
ONE_HOST = {"NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo", "NCCL_DEBUG": "WARN"}
"""The host may have no other interface, and no name that resolves."""
ACCEPT_LENGTH = "3"
"""Simulated. A whole number: of a fraction each rank would draw its own share, and the ranks part ways."""

SERVER = {
    "mem_fraction_static": 0.5,
    "max_running_requests": 64,
    "args": {
        "load-format": "dummy",
        "attention-backend": "triton",
        "sampling-backend": "pytorch",
        "grammar-backend": "none",
        "disable-piecewise-cuda-graph": True,
        "disable-custom-all-reduce": True,
        "cuda-graph-max-bs": 64,
    },
}


def server_environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    simulated = {"SGLANG_SIMULATE_ACC_LEN": ACCEPT_LENGTH}
    return {**own, "PATH": os.environ["PATH"], **offline, **NO_MULTICAST, **ONE_HOST, **simulated}


def make_models(python: Path, folder: Path) -> Path:
    """By the install's own tokenizers, which have to read the file again."""
    subprocess.run([str(python), str(Path(__file__).with_name("shapes.py")), str(folder)], check=True)
    return folder


def find_package(python: Path) -> Path:
    ask = "import importlib.util as u; print(list(u.find_spec('sglang').submodule_search_locations)[0])"
    done = subprocess.run([str(python), "-I", "-c", ask], check=True, capture_output=True, text=True)
    return Path(done.stdout.strip()).resolve()


RESULTS = Path(__file__).resolve().parents[1] / "results"
KEPT = (".log", ".jsonl", ".json", ".txt", ".yaml")


def keep_logs(box: Box, out: Path) -> None:
    """The logs of every server and the deploys' own files, in one archive beside the result."""
    with tarfile.open(out / f"tp{box.tp}-logs.tar.gz", "w:gz") as archive:
        for path in sorted(box.work.rglob("*")):
            small = path.is_file() and path.stat().st_size < 8 * 1024 * 1024
            if small and path.suffix in KEPT and path.name != "vault.json":
                archive.add(path, arcname=str(path.relative_to(box.work)))


def keep_earlier(path: Path) -> None:
    """The file goes on from the project's own, so that the rows of another run are not lost."""
    earlier = RESULTS / path.name
    if earlier.is_file() and not path.exists():
        path.write_bytes(earlier.read_bytes())


def last_words(box: Box) -> list[str]:
    """The end of every server's log, the oldest first: what a table cannot tell of a run that went wrong."""
    found = []
    for path in sorted(box.work.rglob("*.log"), key=lambda path: path.stat().st_mtime):
        lines = path.read_text(errors="replace").splitlines()[-12:]
        found += [f"== {path.relative_to(box.work)}", *(line[:200] for line in lines)]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=Path, required=True, help="of the SGLang install")
    parser.add_argument("--out", type=Path, required=True, help="folder of tp_gpu.json")
    parser.add_argument("--budget-s", type=float, default=540)
    parser.add_argument("--arms-only", action="store_true", help="one deploy, its arms, and no rank killed")
    common_arguments(parser)
    options = parser.parse_args()
    cards = read_gpus()
    if cards == "none":
        parser.error("nvidia-smi shows no GPU on this machine")
    package = find_package(options.python)
    box = Box(
        backend="nccl",
        tp=len(cards),
        release=read_version(package) or "unknown",
        python=options.python,
        package=package,
        models=make_models(options.python, options.work / "models"),
        port=options.port,
        work=options.work,
        env=server_environment(),
        server=SERVER,
        ready={"progress_s": 120, "cap_s": 200},
        budget_s=100,
    )
    machine = {"cpus": os.cpu_count(), "gpu": cards[0]["name"], "gpus": len(cards)}
    record = Record(
        path=options.out / "tp_gpu.json",
        box=box,
        command="benchmarks/gpu/tp_deploy.sh",
        machine=machine,
        budget_s=options.budget_s,
        run="arms" if options.arms_only else "death",
    )
    keep_earlier(record.path)
    whole = False
    try:
        whole = run(
            record, levels=options.levels, tokens=options.tokens, limit_s=300, kill=not options.arms_only
        )
        if whole:
            measure_plain(record, options.levels, options.tokens)
    except Exception as problem:
        record.add("note", message=f"no arm without speculation: {type(problem).__name__}: {problem}")
    finally:
        keep_logs(box, options.out)
        lines = table(record.rows, box.tp)
        print("\n".join(lines if whole else [*last_words(box), *lines]), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
