"""How true load generators are: `python -m benchmarks.loadgen`, against a server that keeps exact time.

Ours, `sglang.bench_serving`, GuideLLM and AIPerf measure the same server one after the other; what each says
of throughput, TTFT and ITL is held against what the server really did, with the CPU time that it took, its
start included. The rate of chunks is the same at each level: two cores have room for server and client.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import specops
from benchmarks import load_clients
from benchmarks.load_clients import Failed, Job, Said
from benchmarks.reference_server import read_truth, serve

Json = Any
RESULT = Path(__file__).resolve().parent / "results" / "loadgen.json"
LEVELS = (1, 10, 100, 250)
TARGET = 0.02
ERRORS = ("throughput_error", "ttft_error", "itl_error")
CHUNKS_S = 1000.0
"""Of all streams together."""
LEAST_ITL_S = 0.01
TTFT_S = 0.1
TOKENS = 20
SECONDS = 6.0
"""About how long a measurement takes, at least."""
ROUNDS = 4
"""Requests a stream, at least."""
PACES = ("spread", "at once")
"""How a level's chunks lie in time: evenly, or those of all streams together, as an engine decodes."""
BURST_LEVEL = 250
"""Where `at once` is measured as well."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--first-repeat", type=int, default=1, help="with --keep: go on where a run was cut")
    parser.add_argument("--levels", default=",".join(map(str, LEVELS)))
    parser.add_argument("--paces", default=",".join(PACES))
    parser.add_argument("--sglang", type=Path, help="python of an environment with SGLang")
    parser.add_argument("--guidellm", type=Path, help="python of an environment with GuideLLM")
    parser.add_argument("--aiperf", type=Path, help="python of an environment with AIPerf")
    parser.add_argument("--tokenizer", type=Path, required=True, help="a folder with a tokenizer")
    parser.add_argument("--port", type=int, default=31390)
    parser.add_argument("--keep", action="store_true", help="add to the rows that are there")
    parser.add_argument("--out", type=Path, default=RESULT)
    asked = parser.parse_args()
    clients = choose_clients(asked)
    kept = json.loads(asked.out.read_text()) if asked.keep and asked.out.exists() else {}
    rows = kept.get("rows") or []
    used = {**(kept.get("versions") or {}), "specops": specops.__version__, **versions(asked)}
    for repeat in range(asked.first_repeat, asked.repeats + 1):
        for at_once, pace in list_points(asked.levels, asked.paces):
            for name, client in clients.items():
                row = measure(name, client, at_once, pace, repeat, asked)
                rows.append(row)
                print(json.dumps({k: v for k, v in row.items() if k not in ("said", "truth")}), flush=True)
                write(rows, used, asked.out)
    return 0


def choose_clients(asked: argparse.Namespace) -> dict[str, Callable[[Job], Said]]:
    chosen: dict[str, Callable[[Job], Said]] = {"specops": load_clients.run_specops}
    for name, python, start in (
        ("sglang.bench_serving", asked.sglang, load_clients.run_bench_serving),
        ("guidellm", asked.guidellm, load_clients.run_guidellm),
        ("aiperf", asked.aiperf, load_clients.run_aiperf),
    ):
        if python is not None:
            chosen[name] = partial(start, python=python.absolute())
    return chosen


def list_points(levels: str, paces: str) -> list[tuple[int, str]]:
    """(C, pace): all levels spread, and the one that is hardest to read with all streams' chunks at once."""
    wanted = [int(word) for word in levels.split(",")]
    points = [(c, PACES[0]) for c in wanted] + [(c, PACES[1]) for c in wanted if c == BURST_LEVEL]
    return [(c, pace) for c, pace in points if pace in paces.split(",")]


def measure(
    name: str, client: Callable[[Job], Said], at_once: int, pace: str, repeat: int, asked: argparse.Namespace
) -> dict[str, Json]:
    itl_s = max(LEAST_ITL_S, at_once / CHUNKS_S)
    rounds = max(ROUNDS, round(SECONDS / (TTFT_S + TOKENS * itl_s)))
    row: dict[str, Json] = {"client": name, "C": at_once, "pace": pace, "repeat": repeat}
    row |= {"requests": at_once * rounds, "load_average": round(os.getloadavg()[0], 1)}
    with tempfile.TemporaryDirectory() as folder:
        job = Job(
            url=f"http://127.0.0.1:{asked.port}", at_once=at_once, requests=at_once * rounds, tokens=TOKENS,
            tokenizer=asked.tokenizer.resolve(), folder=Path(folder),
        )  # fmt: skip
        times = {"ttft_s": TTFT_S, "itl_s": itl_s, "processes": 2, "spread": pace == PACES[0]}
        with serve(asked.port, Path(folder) / "truth", **times) as truth:  # type: ignore[arg-type]
            before = cpu_s()
            try:
                said = client(job)
            except (Failed, KeyError, ValueError, StopIteration, OSError) as error:
                return {**row, "failed": f"{type(error).__name__}: {error}"[:500]}
            row["client_cpu_s"] = round(cpu_s() - before, 3)
            done = [each for each in read_truth(truth) if each["tokens"] == TOKENS][-job.requests :]
    if len(done) < job.requests:
        return {**row, "failed": f"{len(done)} of {job.requests} requests came to the server"}
    return row | said.own | judge(said, done)


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


def write(rows: list[Json], used: dict[str, str], out: Path) -> None:
    out.parent.mkdir(exist_ok=True)
    others = "".join(f"--{name} PYTHON " for name in ("sglang", "guidellm", "aiperf") if name in used)
    whole = {
        "name": out.stem,
        "date": datetime.now(UTC).date().isoformat(),
        "command": f"python -m benchmarks.loadgen {others}--tokenizer DIR",
        "machine": {"cpus": os.cpu_count(), "gpu": "none"},
        "versions": used,
        "rows": rows,
        "summary": summary(rows),
    }
    out.write_text(json.dumps(whole, indent=1) + "\n")


def versions(asked: argparse.Namespace) -> dict[str, str]:
    found = {}
    for name, python in (("sglang", asked.sglang), ("guidellm", asked.guidellm), ("aiperf", asked.aiperf)):
        if python is not None:
            code = f"import importlib.metadata as m; print(m.version({name!r}))"
            done = subprocess.run([str(python), "-c", code], capture_output=True, text=True)
            found[name] = done.stdout.strip()
    return found


def summary(rows: list[Json]) -> dict[str, Json]:
    """By C, pace and client: the median of the repeats' errors (as shares, without their signs), the largest,
    and CPU seconds; then whether ours kept to the target and is no worse than the best other one."""
    table = []
    for at_once, pace in dict.fromkeys((row["C"], row["pace"]) for row in rows):
        here = [row for row in rows if (row["C"], row["pace"]) == (at_once, pace)]
        for client in dict.fromkeys(row["client"] for row in here):
            mine = [row for row in here if row["client"] == client]
            good = [row for row in mine if "failed" not in row]
            line = {"C": at_once, "pace": pace, "client": client, "runs": len(mine)}
            line["failed"] = len(mine) - len(good)
            for key in ERRORS if good else ():
                line[key] = round(statistics.median(abs(row[key]) for row in good), 4)
                line[f"worst_{key}"] = round(max(abs(row[key]) for row in good), 4)
            if good:
                line["client_cpu_s"] = round(statistics.median(row["client_cpu_s"] for row in good), 2)
            for key in ("rss_mb", "cpu_share"):
                if any(key in row for row in good):
                    line[f"most_{key}"] = max(row[key] for row in good if key in row)
            table.append(line)
    return {"by_level": table, "target": TARGET, "missed": list_missed(table)}


def list_missed(table: list[Json]) -> list[str]:
    """Where ours is beyond the target, or further from the truth than another client, in words."""
    missed = []
    for ours in [line for line in table if line["client"] == "specops" and not line["failed"]]:
        level = [line for line in table if (line["C"], line["pace"]) == (ours["C"], ours["pace"])]
        for key in ERRORS:
            best = min((line for line in level if key in line), key=lambda line: float(line[key]))
            where = f"C={ours['C']} {ours['pace']}: {key} {ours[key]:.4f}"
            if ours[key] > TARGET:
                missed.append(f"{where}, target {TARGET}")
            if ours[key] > best[key]:
                missed.append(f"{where}, {best['client']} {best[key]:.4f}")
    return missed


if __name__ == "__main__":
    raise SystemExit(main())
