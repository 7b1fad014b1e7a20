"""How many steps a gate should wait before it opens again: `python -m benchmarks.hysteresis`.

Five long requests hold the batch at T; a sixth comes and goes. Every time that it goes the gate may open,
which costs a catch-up, and every step that it waits is a plain one. Each hysteresis has a server of its own
(0.5.12.post1, EAGLEWorkerV2, the lab's pair on the CPU), the first of them twice: that is the noise.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import specops
from benchmarks import gate_labs
from benchmarks.gate_load import Answer, Client, client, prompt
from benchmarks.gated_server import THRESHOLD, V2, serve_patched
from benchmarks.summarize import print_table
from specops.config.patch import load_patch
from specops.lab import older

RELEASE = "0.5.12.post1"
RESULT = Path(__file__).resolve().parent / "results" / "hysteresis.json"
PATCH = Path(__file__).resolve().parents[1] / "patches" / "batch-gate"
STEPS = (4, 0, 1, 2, 8, 16, 32, 4)
TOKENS, VISITOR_TOKENS = 240, 6
APART = {"at once": 0, "after 12 tokens": 12, "after 60 tokens": 60}
"""How long after one visitor has gone the next one comes, in tokens of a long request."""
COUNTED = ("open_steps", "closed_steps", "switches", "catch_ups", "catch_up_tokens", "catch_up_seconds")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--port", type=int, default=31820)
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="specops-hysteresis-") as folder:
        lab = gate_labs.prepare(RELEASE, older.default_home())
        tree = older.patched_copy(lab, load_patch(PATCH), Path(folder) / "tree")
        for launch, steps in enumerate(STEPS):
            extra = ("--speculative-gate-hysteresis", str(steps))
            work = Path(folder) / str(launch)
            with serve_patched(RELEASE, asked.port, work, tree, V2, extra):
                for row in asyncio.run(visits(asked.port, asked.repeats)):
                    rows.append({"launch": launch, "hysteresis": steps, **row})
                    print(json.dumps(rows[-1]), flush=True)
    whole = {
        "name": "hysteresis",
        "date": datetime.now(UTC).date().isoformat(),
        "command": "python -m benchmarks.hysteresis",
        "machine": {"cpus": os.cpu_count(), "gpu": "none"},
        "versions": {"specops": specops.__version__, "sglang": RELEASE},
        "rows": rows,
        "summary": summary(rows),
    }
    RESULT.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    print_table(whole)
    return 0


async def visits(port: int, repeats: int) -> list[dict[str, Any]]:
    rows = []
    async with client(port) as server:
        await flap(server, 0, 0)  # the first of everything
        for repeat in range(repeats):
            for apart, tokens in APART.items():
                row = await flap(server, repeat, tokens)
                rows.append({"apart": apart, "repeat": repeat, "load_average": os.getloadavg()[0], **row})
    return rows


async def flap(server: Client, seed: int, apart: int) -> dict[str, Any]:
    """T long requests to their end, with one visitor after the other; what it took."""
    chance, answers = random.Random(seed), [Answer() for _ in range(THRESHOLD)]
    before, began = await server.gate(), time.monotonic()
    tasks = [asyncio.create_task(server.ask(prompt(chance, 12), TOKENS, answer)) for answer in answers]
    visitors = 0
    while not any(task.done() for task in tasks):
        so_far = made(answers[0])
        if so_far:
            await server.ask(prompt(chance, 6), VISITOR_TOKENS)
            visitors += 1
        while made(answers[0]) < so_far + max(1, apart) and not any(task.done() for task in tasks):
            await asyncio.sleep(0.002)
    await asyncio.gather(*tasks)
    spent, after = time.monotonic() - began, await server.gate()
    counted = {key: round(after[key] - before[key], 4) for key in COUNTED}
    tokens = sum(made(answer) for answer in answers) + VISITOR_TOKENS * visitors
    return {"visitors": visitors, "tokens": tokens, "wall_s": round(spent, 2), **counted}


def made(answer: Answer) -> int:
    return answer.counts[-1] if answer.counts else 0


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A line a load and hysteresis: medians over the repeats. `tok_s` with its range."""
    table = []
    for apart in APART:
        for steps in sorted({row["hysteresis"] for row in rows}):
            same = [row for row in rows if (row["apart"], row["hysteresis"]) == (apart, steps)]
            speeds = [row["tokens"] / row["wall_s"] for row in same]
            table.append(
                {
                    "apart": apart,
                    "hysteresis": steps,
                    "tok_s": round(statistics.median(speeds), 1),
                    "min": round(min(speeds), 1),
                    "max": round(max(speeds), 1),
                    "tokens_a_step": round(
                        statistics.median(r["tokens"] / (r["open_steps"] + r["closed_steps"]) for r in same),
                        2,
                    ),
                    "catch_ups": statistics.median(row["catch_ups"] for row in same),
                    "catch_up_s": round(statistics.median(row["catch_up_seconds"] for row in same), 2),
                    "runs": len(same),
                }
            )
    return {"by_load": table}


if __name__ == "__main__":
    raise SystemExit(main())
