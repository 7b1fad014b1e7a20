"""Which words that specops looks for in logs each release of SGLang has: `python -m benchmarks.literals`.

Reads the wheels themselves (pip fetches what is not cached), runs nothing of them, and lists what vanished.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import specops
from specops.lab.wheels import open_wheel

Json = Any
RESULT = Path(__file__).resolve().parent / "results" / "literals.json"
RELEASES = (
    *("0.5.5", "0.5.5.post1", "0.5.5.post2", "0.5.5.post3", "0.5.6", "0.5.6.post1", "0.5.6.post2", "0.5.7"),
    *(
        "0.5.8",
        "0.5.8.post1",
        "0.5.9",
        "0.5.10",
        "0.5.10.post1",
        "0.5.11",
        "0.5.12",
        "0.5.12.post1",
        "0.5.13",
    ),
    *("0.5.13.post1", "0.5.14", "0.5.15", "0.5.15.post1", "0.5.16", "0.5.17", "0.5.18", "0.5.19", "0.5.20"),
    *("0.5.21", "0.5.22", "0.5.23"),
)
SIGNATURES: dict[str, tuple[str, ...]] = {
    "SCHED_EXC": ("Scheduler hit an exception: ",),
    "WARMUP_FAIL": ("Initialization failed. warmup error: ",),
    "CAPTURE_OOM": ("graph failed: ",),
    "CAPTURE_FAIL": ("graph failed: ",),
    "NO_KV_MEM": (
        "Not enough memory. Please try to increase --mem-fraction-static",
        "Loaded weights leave no GPU memory for the KV cache",
    ),
    "MEM_UNBALANCED": ("The memory capacity is unbalanced. Some GPUs may be occupied",),
    "ADAPT_LOGITS": ("shared logits buffer holds ",),
    "ADAPT_OFF": ("speculative_adaptive disabled: ",),
    "ADAPT_STEPS": ("is not in the adaptive config",),
    "ADAPT_CFG": ("candidate_steps must be a list of",),
    "SPEC_V2_TOPK": ("Spec v2 currently only supports topk = 1",),
    "BAD_DRAFT_ATTR": ("set_embed_and_head", "hot_token_id", "set_eagle3_layers_to_capture"),
    "SHARD_BROKEN": ("shard file(s) missing", "Cannot find any model weights"),
    "PORT_USED": ("is used by a process already",),
    "LOAD_UNEVEN": ("could finish the model loading, but there are other ranks that",),
    "PACKAGE_OLD": ("is less than the minimum required version ",),
    "KV_LEAK": ("memory leak detected!",),
    "POOL_OOM": ("out of memory. Try to lower your batch size",),
    "WATCHDOG": ("watchdog timeout ",),
    "RANK_DIED_INIT": ("died during initialization",),
    "CHILD_DIED": ("Received sigquit from a child process", "SIGQUIT received. "),
    "SUBPROCESS_CRASHED": ("crashed with exit code",),
    "START_OK": ("The server is fired up and ready to roll!",),
    "CAP48": ("Max running requests is reset to 48 for speculative decoding",),
    "SPEC_V1_FALLBACK": ("Spec v1 is used for eagle/eagle3/standalone speculative decoding because",),
    "RETRACT": ("KV cache pool is full. Retract requests",),
    "HEALTH_503": ("Health check failed. Server couldn't get a response from detokenizer",),
    "PYSPY_MISSING": ("yspy dump",),
    "SIGTERM_DRAIN": ("SIGTERM received. ",),
    "FORCE_EXIT": ("Signal SIGTERM received while health check failed. Force exiting",),
    "CRASH_DIAG": ("before crash diagnostics",),
}
"""Signature -> its words as SGLang's source has them; the values that go into them are not there."""
ELSEWHERE: dict[str, str] = {
    "UNKNOWN_FLAG": "argparse",
    "CUDA_OOM": "torch",
    "HOST_OOM": "Python and torch",
    "BAD_DRAFT_SHAPE": "torch",
    "MODEL_MISSING": "transformers and the hub's client",
    "HTTP_PORT_USED": "asyncio",
    "IMA": "CUDA",
    "IDX_OOB": "torch",
    "DEV_ASSERT": "CUDA",
    "ZERODIV": "Python",
    "UNPACK": "Python",
    "IMPORT": "Python",
    "SYNTAX": "Python",
    "NCCL_ABORT": "torch and NCCL",
    "GLOO_CLOSED": "gloo",
    "PIPE_CLOSED": "Python",
    "GRAPH_FALSE": "put together from parts: see the table of signals",
    "SOFT_WATCHDOG": "the words of WATCHDOG",
}
"""Signature -> who writes its line, where that is not SGLang."""
MILESTONES: dict[str, tuple[str, ...]] = {
    "processes": ("Init torch distributed begin.", "Init parallel begin."),
    "process group": ("Init torch distributed ends.", "Init parallel ends."),
    "weights": ("Load weight begin. ",),
    "weights loaded": ("Load weight end. ",),
    "kv cache": ("KV Cache is allocated", "Memory pool end. "),
    "graph capture": ("Capturing batches", "graph begin"),
    "graphs captured": ("graph end",),
    "scheduler": ("max_total_num_tokens=",),
    "warm-up done": ("The server is fired up and ready to roll!",),
}


def literals() -> list[tuple[str, str]]:
    """(what it is for, the words), each once."""
    return [
        (name, each) for table in (SIGNATURES, MILESTONES) for name, them in table.items() for each in them
    ]


def read_sources(release: str) -> str:
    with open_wheel(release) as wheel:
        names = [name for name in wheel.namelist() if name.startswith("sglang/") and name.endswith(".py")]
        return join_literals("\n".join(wheel.read(name).decode(errors="replace") for name in names))


def join_literals(source: str) -> str:
    """Strings that the source has in pieces, a line each, as one."""
    lines = source.split("\n")
    out: list[str] = []
    for line in lines:
        begins = line.lstrip().removeprefix("f").startswith(('"', "'"))
        if begins and out and out[-1].rstrip().endswith(('"', "'")):
            out[-1] = out[-1].rstrip()[:-1] + line.lstrip().removeprefix("f")[1:]
        else:
            out.append(line)
    return "\n".join(out)


def look(releases: Sequence[str]) -> list[dict[str, Json]]:
    sources = {release: [words in text for _, words in literals()] for release, text in read(releases)}
    return [
        {"for": name, "literal": words, "in": {release: found[at] for release, found in sources.items()}}
        for at, (name, words) in enumerate(literals())
    ]


def read(releases: Sequence[str]) -> Iterable[tuple[str, str]]:
    return ((release, read_sources(release)) for release in releases)


def summary(rows: Sequence[dict[str, Json]]) -> dict[str, Json]:
    """`vanished`: words that the newest release has not, with the last one that had them; `unknown`: what
    none has."""
    had = [(row["for"], row["literal"], [each for each, there in row["in"].items() if there]) for row in rows]
    releases = list(rows[0]["in"]) if rows else [""]
    return {
        "releases": len(releases),
        "literals": len(rows),
        "in_the_newest": sum(releases[-1] in found for _, _, found in had),
        "vanished": [
            {"for": name, "literal": words, "last": found[-1]}
            for name, words, found in had
            if found and releases[-1] not in found
        ],
        "younger": [
            {"for": name, "literal": words, "first": found[0]}
            for name, words, found in had
            if found and found[0] != releases[0]
        ],
        "unknown": [f"{name}: {words}" for name, words, found in had if not found],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", action="append", help="again for more; all from 0.5.5 on without any")
    parser.add_argument("--out", type=Path, default=RESULT)
    asked = parser.parse_args()
    rows = look(asked.release or RELEASES)
    told = summary(rows)
    for entry in told["vanished"]:
        print(f"vanished after {entry['last']:14}{entry['for']:18}{entry['literal']}")
    for entry in told["younger"]:
        print(f"since {entry['first']:23}{entry['for']:18}{entry['literal']}")
    for entry in told["unknown"]:
        print(f"in no release: {entry}")
    whole = {
        "name": "literals",
        "date": datetime.now(UTC).date().isoformat(),
        "command": "python -m benchmarks.literals",
        "machine": {"cpus": os.cpu_count(), "gpu": "none"},
        "versions": {"specops": specops.__version__, "sglang": ", ".join(asked.release or RELEASES)},
        "rows": rows,
        "summary": told,
    }
    asked.out.parent.mkdir(exist_ok=True)
    asked.out.write_text(json.dumps(whole, indent=1) + "\n")
    return 1 if told["unknown"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
