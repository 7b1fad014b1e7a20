"""Load generators side by side: how each is started, and what it says of throughput, TTFT and ITL."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.reference_server import MODEL
from specops.connect.payload import agent_zip

Json = Any
LIMIT_S = 180.0
PROMPT = 8


@dataclass(frozen=True)
class Said:
    """By the client itself. Seconds, tokens a second."""

    throughput: float
    ttft_s: float
    itl_s: float
    window: tuple[float, float] | None = None
    """Monotonic: what the throughput is about; None: from the first request to the last token."""
    own: dict[str, float] = field(default_factory=dict)
    """What the client says that it took itself: memory, and its share of a core while it measured."""


@dataclass(frozen=True)
class Job:
    url: str
    at_once: int
    requests: int
    tokens: int
    tokenizer: Path
    folder: Path


class Failed(Exception):
    """A client that did not end well; its last words."""


def run_specops(job: Job) -> Said:
    path = job.folder / "agent.zip"
    path.write_bytes(agent_zip())
    spec = {
        "url": job.url, "levels": [job.at_once], "requests": job.requests, "max_tokens": job.tokens,
        "release": "0.5.18",
    }  # fmt: skip
    out = run([sys.executable, "-B", str(path), "child-sweep"], job, given=json.dumps(spec))
    value = json.loads(out.splitlines()[-1])["value"]
    if value["ended"] != "finished":
        raise Failed(str(value["ended"]))
    level = value["levels"][0]
    start, end = level["window"]
    own = {"rss_mb": round(level["client"]["rss_mb"], 1), "cpu_share": round(level["client"]["cpu_share"], 3)}
    return Said(level["throughput"], level["ttft"]["avg"], level["itl"]["avg"], (start, end), own)


def run_bench_serving(job: Job, python: Path) -> Said:
    out = job.folder / "bench_serving.jsonl"
    argv = [
        str(python), "-m", "sglang.bench_serving", "--backend", "sglang", "--base-url", job.url,
        "--dataset-name", "random-ids", "--random-input-len", str(PROMPT),
        "--random-output-len", str(job.tokens), "--random-range-ratio", "1",
        "--num-prompts", str(job.requests), "--max-concurrency", str(job.at_once),
        "--model", str(job.tokenizer), "--tokenizer", str(job.tokenizer), "--output-file", str(out),
        "--disable-tqdm", "--warmup-requests", "0",
    ]  # fmt: skip
    run(argv, job, HF_HUB_OFFLINE="1", SGLANG_USE_CPU_ENGINE="1", TRANSFORMERS_OFFLINE="1")
    found = json.loads(out.read_text().splitlines()[-1])
    out.unlink()
    return Said(found["output_throughput"], found["mean_ttft_ms"] / 1e3, found["mean_itl_ms"] / 1e3)


def run_guidellm(job: Job, python: Path) -> Said:
    out = job.folder / "guidellm.json"
    scenario = job.folder / "scenario.json"
    scenario.write_text(json.dumps({"metadata": {"name": "reference"}, "spec": describe_guidellm(job, out)}))
    argv = [str(python.with_name("guidellm")), "run", "-c", str(scenario), "--disable-console"]
    run(argv, job, HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    metrics = json.loads(out.read_text())["benchmarks"][0]["metrics"]

    def mean(name: str) -> float:
        return float(metrics[name]["successful"]["mean"])

    return Said(
        mean("output_tokens_per_second"),
        mean("time_to_first_token_ms") / 1e3,
        mean("inter_token_latency_ms") / 1e3,
    )


def describe_guidellm(job: Job, out: Path) -> Json:
    """A scenario of GuideLLM 0.8."""
    return {
        "backend": {
            "kind": "openai_http", "target": job.url, "model": MODEL, "request_format": "/v1/completions",
            "http2": False,
        },
        "profile": {"kind": "concurrent", "streams": [job.at_once]},
        "tokenizer": {"kind": "huggingface_auto", "model": str(job.tokenizer)},
        "data": [{"kind": "synthetic_text", "prompt_tokens": PROMPT, "output_tokens": job.tokens}],
        "constraints": [{"kind": "max_requests", "count": job.requests}],
        "outputs": [{"kind": "json", "path": str(out)}],
    }  # fmt: skip


def run_aiperf(job: Job, python: Path) -> Said:
    argv = [
        str(python.with_name("aiperf")), "profile", "--model", MODEL, "--url", job.url,
        "--endpoint-type", "completions", "--streaming", "--concurrency", str(job.at_once),
        "--request-count", str(job.requests), "--tokenizer", str(job.tokenizer), "--isl", str(PROMPT),
        "--osl", str(job.tokens), "--extra-inputs", "ignore_eos:true", "--ui", "none",
        "--artifact-dir", str(job.folder / "aiperf"),
    ]  # fmt: skip
    run(argv, job)  # told to stay offline it takes a folder for a name on a hub
    path = next((job.folder / "aiperf").rglob("profile_export_aiperf.json"))
    found = json.loads(path.read_text())
    return Said(
        found["output_token_throughput"]["avg"],
        found["time_to_first_token"]["avg"] / 1e3,
        found["inter_token_latency"]["avg"] / 1e3,
    )


def run(argv: Sequence[str], job: Job, given: str = "", **env: str) -> str:
    """Its stdout. Raises Failed with the end of what it said."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG")}
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**kept, **env}, cwd=job.folder, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise Failed(str(error)) from None
    try:
        out, errors = process.communicate(given, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        raise Failed(f"it did not end in {LIMIT_S:.0f} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its workers too; after a good end there are none
        process.wait()
    if process.returncode:
        raise Failed(f"exit {process.returncode}: {(out + errors).strip()[-400:]}")
    return out
