"""How true load generators are: `python -m benchmarks.loadgen`, against a server that keeps exact time.

Ours, `sglang.bench_serving`, GuideLLM and AIPerf measure the same server one after the other; what each says
of throughput, TTFT and ITL is held against what the server really did, with the CPU time that it took. The
rate of chunks is the same at each level, so that two cores have room for server and client.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import specops
from benchmarks import load_clients
from benchmarks.load_clients import Failed, Job, Said
from benchmarks.reference_server import read_truth, serve

Json = Any
RESULT = Path(__file__).resolve().parent / "results" / "loadgen.json"
LEVELS = (1, 10, 100, 250)
CHUNKS_S = 1000.0
"""Of all streams together."""
LEAST_ITL_S = 0.01
TTFT_S = 0.1
TOKENS = 40
SECONDS = 6.0
"""About how long a measurement takes."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--levels", default=",".join(map(str, LEVELS)))
    parser.add_argument("--sglang", type=Path, help="python of an environment with SGLang")
    parser.add_argument("--guidellm", type=Path, help="python of an environment with GuideLLM")
    parser.add_argument("--aiperf", type=Path, help="python of an environment with AIPerf")
    parser.add_argument("--tokenizer", type=Path, required=True, help="a folder with a tokenizer")
    parser.add_argument("--port", type=int, default=31390)
    parser.add_argument("--keep", action="store_true", help="add to the rows that are there")
    asked = parser.parse_args()
    clients: dict[str, Callable[[Job], Said]] = {"specops": load_clients.run_specops}
    for name, python, start in (
        ("sglang.bench_serving", asked.sglang, load_clients.run_bench_serving),
        ("guidellm", asked.guidellm, load_clients.run_guidellm),
        ("aiperf", asked.aiperf, load_clients.run_aiperf),
    ):
        if python is not None:
            clients[name] = lambda job, start=start, python=python: start(job, python)  # type: ignore[misc]
    rows = json.loads(RESULT.read_text())["rows"] if asked.keep and RESULT.exists() else []
    for repeat in range(1, asked.repeats + 1):
        for at_once in map(int, asked.levels.split(",")):
            for name, client in clients.items():
                row = measure(name, client, at_once, repeat, asked)
                rows.append(row)
                print(json.dumps({k: v for k, v in row.items() if k not in ("said", "truth")}), flush=True)
                write(rows, asked)
    return 0


def measure(
    name: str, client: Callable[[Job], Said], at_once: int, repeat: int, asked: argparse.Namespace
) -> dict[str, Json]:
    itl_s = max(LEAST_ITL_S, at_once / CHUNKS_S)
    rounds = max(2, round(SECONDS / (TTFT_S + TOKENS * itl_s)))
    row: dict[str, Json] = {"client": name, "C": at_once, "repeat": repeat, "requests": at_once * rounds}
    row["load_average"] = round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory() as folder:
        job = Job(
            url=f"http://127.0.0.1:{asked.port}", at_once=at_once, requests=at_once * rounds, tokens=TOKENS,
            tokenizer=asked.tokenizer.resolve(), folder=Path(folder),
        )  # fmt: skip
        pace = {"ttft_s": TTFT_S, "itl_s": itl_s, "processes": 2}
        with serve(asked.port, Path(folder) / "truth", **pace) as truth:  # type: ignore[arg-type]
            before = cpu_s()
            try:
                said = client(job)
            except (Failed, KeyError, ValueError, StopIteration, OSError) as error:
                return {**row, "failed": f"{type(error).__name__}: {error}"[:500]}
            row["client_cpu_s"] = round(cpu_s() - before, 3)
            done = [each for each in read_truth(truth) if each["tokens"] == TOKENS][-job.requests :]
    return row | judge(said, done)


def cpu_s() -> float:
    """Of children that have ended, and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def judge(said: Said, done: list[Json]) -> dict[str, Json]:
    """Errors as shares of the truth, signed. Each throughput is held against the window it is about."""
    start, end = said.window or (
        min(each["came"] for each in done),
        max(each["wrote"][-1][0] for each in done),
    )
    tokens = sum(tokens_until(each["wrote"], end) - tokens_until(each["wrote"], start) for each in done)
    ttft = [each["wrote"][0][0] - each["came"] for each in done]
    gaps = [b[0] - a[0] for each in done for a, b in zip(each["wrote"], each["wrote"][1:], strict=False)]
    truth = {
        "throughput": tokens / (end - start),
        "ttft_s": sum(ttft) / len(ttft),
        "itl_s": sum(gaps) / len(gaps),
    }
    return {
        "throughput_error": round(said.throughput / truth["throughput"] - 1, 5),
        "ttft_error": round(said.ttft_s / truth["ttft_s"] - 1, 5),
        "itl_error": round(said.itl_s / truth["itl_s"] - 1, 5),
        "truth": truth,
        "said": {"throughput": said.throughput, "ttft_s": said.ttft_s, "itl_s": said.itl_s},
        "window": "steady" if said.window else "whole",
    }


def tokens_until(wrote: list[list[float]], moment: float) -> int:
    return int(max((tokens for at, tokens in wrote if at <= moment), default=0))


def write(rows: list[Json], asked: argparse.Namespace) -> None:
    RESULT.parent.mkdir(exist_ok=True)
    whole = {
        "name": "loadgen",
        "date": datetime.now(UTC).date().isoformat(),
        "command": "python -m benchmarks.loadgen --sglang PYTHON --guidellm PYTHON --aiperf PYTHON "
        "--tokenizer DIR",
        "machine": {"cpus": os.cpu_count(), "gpu": "none"},
        "versions": {"specops": specops.__version__, **versions(asked)},
        "rows": rows,
        "summary": summarize(rows),
    }
    RESULT.write_text(json.dumps(whole, indent=1) + "\n")


def versions(asked: argparse.Namespace) -> dict[str, str]:
    found = {}
    for name, python in (("sglang", asked.sglang), ("guidellm", asked.guidellm), ("aiperf", asked.aiperf)):
        if python is not None:
            code = f"import importlib.metadata as m; print(m.version({name!r}))"
            done = subprocess.run([str(python), "-c", code], capture_output=True, text=True)
            found[name] = done.stdout.strip()
    return found


def summarize(rows: list[Json]) -> dict[str, Json]:
    """By client and C: the largest error of the medians' repeats, and CPU time; failures are counted."""
    found: dict[str, Json] = {}
    for name in dict.fromkeys(row["client"] for row in rows):
        mine = [row for row in rows if row["client"] == name]
        found[name] = {"failed": sum("failed" in row for row in mine)}
        for at_once in dict.fromkeys(row["C"] for row in mine):
            good = [row for row in mine if row["C"] == at_once and "failed" not in row]
            if good:
                found[name][f"C={at_once}"] = {
                    key: median([abs(row[key]) for row in good])
                    for key in ("throughput_error", "ttft_error", "itl_error", "client_cpu_s")
                }
    return found


def median(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


if __name__ == "__main__":
    raise SystemExit(main())
