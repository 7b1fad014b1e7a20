"""Every arm of one release side by side on one GPU: `python3 -m benchmarks.gpu.side_by_side --site S ...`.

All servers are up at once and one of them works at a time: the arms of a level follow each other within
seconds on the same card, and one load's time is enough for all. The others are idle; an idle server launches
nothing on the GPU. Levels are steady windows (benchmarks.gpu.levels). Then, where there is time: traces of
single steps, reopenings after known gaps.

Writes OUT/rows.jsonl, steps.jsonl and reopen.jsonl as it goes; `benchmarks.gpu.gate_record` makes the table.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.gpu.gate import SPEC, make_tree, numbers
from benchmarks.gpu.levels import (
    READ_BYTES,
    Flow,
    abort,
    read_window,
    set_threshold,
    tokens_for,
    until_idle,
    window,
)
from benchmarks.gpu.serving import Failed, await_token, common, start, stop
from benchmarks.gpu.step_profile import profile_level
from specops.steps.gate import native_config

LEVELS = (1, 2, 5, 6, 10, 30, 64, 128, 250)
SIZES = (1, 2, 4, 5, 6, 8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 128, 192, 256)
"""Of the graphs, in all arms: T among them, because SGLang's own gate goes by the padded size."""
STAGES = ("no-spec", "always-on", "native", "gated")
POOL = 100_000
"""Tokens of each server's KV cache: four of them share the card."""
ACCEPTED = "3"
"""Whole: of a fraction each step draws its own for the whole batch, and 100 steps are 2 % of noise."""
GAPS = (100, 1000)
REOPENINGS, AFTER_S = 3, 1.5
REOPENED = re.compile(r"caught up: (\d+) tokens of (\d+) requests in ([\d.]+) ms")
ACCEPT = re.compile(r"^sglang:spec_accept_length\{[^}]*\} (\S+)", re.M)
GRAPHS = re.compile(r"(?:[Cc]apture[^\n]*|plain decode graphs[^\n]*)mem usage=([\d.]+) GB")
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    name: str
    url: str
    threshold: int | None = None
    """Set by live control before each window; None for a server that has no gate of ours."""


def main() -> int:
    asked = parse()
    asked.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the servers are ended on the way out
    began = time.monotonic()
    with ExitStack() as stack:
        urls = asked.urls or start_all(asked, stack)
        print(f"all up in {time.monotonic() - began:.0f} s", flush=True)
        asyncio.run(measure_all(asked, arms_of(urls, asked), began + asked.until))
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--release", required=True)
    parser.add_argument("--site", type=Path, help="folder that holds the pristine sglang/")
    parser.add_argument("--models", type=Path, help="target/ and draft/ without weights")
    parser.add_argument("--pair", type=Path, help="target/ and draft/ of a trained pair, in their place")
    parser.add_argument("--urls", type=parse_urls, help="STAGE=URL,..: servers that run already")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--worker", choices=SPEC, default="v2")
    parser.add_argument("--stages", type=lambda text: text.split(","), default=STAGES)
    parser.add_argument("--once", type=lambda text: text.split(","), default=(), help="arms of one repeat")
    parser.add_argument("--threshold", type=int, default=5)
    parser.add_argument("--tuned", type=int, default=40)
    parser.add_argument("--levels", type=numbers, default=LEVELS)
    parser.add_argument(
        "--windows", type=float, nargs=3, default=(3.0, 2.0, 1.5), help="s; to C=10, to C=128, above"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--profile", type=numbers, default=(), metavar="C,..", help="levels to trace")
    parser.add_argument("--gpu", default="0")
    parser.add_argument("--port", type=int, default=31600, help="of the first server")
    parser.add_argument("--until", type=float, default=540, help="s; no window begins after it")
    return parser.parse_args()


def parse_urls(text: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in text.split(","))


def start_all(asked: argparse.Namespace, stack: ExitStack) -> dict[str, str]:
    """Every stage's URL; a stage whose server does not come up is said and left out."""
    started: list[tuple[str, str, Any, Path, float]] = []
    for number, stage in enumerate(asked.stages):
        port, tree = asked.port + 50 * number, make_tree(asked, stage)
        env = {"CUDA_VISIBLE_DEVICES": asked.gpu}
        if stage != "no-spec" and asked.pair is None:
            env["SGLANG_SIMULATE_ACC_LEN"] = ACCEPTED
        began = time.monotonic()
        process, log = start(stage, asked.site, tree, arguments_of(asked, stage), env, port, asked.out)
        stack.callback(stop, process)
        started.append((stage, f"http://127.0.0.1:{port}", process, log, began))
    urls = {}
    for stage, url, process, log, began in started:
        try:
            await_token(process, url, log, began)
        except Failed as failed:
            print(f"{stage}: {failed}", flush=True)
            continue
        graphs = [float(value) for value in GRAPHS.findall(log.read_text(errors="replace"))]
        seconds = time.monotonic() - began
        print(f"{stage}: up after {seconds:.0f} s; graphs of {graphs} GB", flush=True)
        append(asked.out / "loads.jsonl", {"stage": stage, "ready_s": round(seconds, 1), "graphs_gb": graphs})
        urls[stage] = url
    return urls


def arguments_of(asked: argparse.Namespace, stage: str) -> list[str]:
    models = asked.pair or asked.models
    arguments = [*common(asked.release, max(SIZES)), "--model-path", str(models / "target")]
    arguments += ["--dtype", "bfloat16"] if asked.pair else ["--load-format", "dummy"]
    arguments += ["--mem-fraction-static", "0.93", "--max-total-tokens", str(POOL)]
    arguments += ["--schedule-conservativeness", "0.3", "--cuda-graph-bs", *map(str, SIZES)]
    if stage == "no-spec":
        return arguments
    arguments += ["--speculative-algorithm", "EAGLE3"]
    arguments += ["--speculative-draft-model-path", str(models / "draft")]
    for key, value in SPEC[asked.worker].items():
        arguments += [f"--speculative-{key}", str(value)]
    if stage == "gated":
        arguments += ["--speculative-disable-batch-threshold", str(asked.threshold)]
    if stage == "native":
        gate = asked.out / "native.json"
        gate.write_bytes(native_config(SPEC[asked.worker]["num-steps"], asked.threshold))
        arguments += ["--speculative-adaptive", "--speculative-adaptive-config", str(gate)]
    return arguments


def arms_of(urls: Mapping[str, str], asked: argparse.Namespace) -> list[Arm]:
    """The gated server plays two arms, by its live control."""
    arms = [Arm(name=stage, url=url) for stage, url in urls.items() if stage != "gated"]
    if "gated" in urls:
        arms.append(Arm(name="gated", url=urls["gated"], threshold=asked.threshold))
        arms.append(Arm(name="tuned", url=urls["gated"], threshold=asked.tuned))
    return arms


def append(path: Path, row: Row) -> None:
    with open(path, "a") as out:
        out.write(json.dumps(row) + "\n")


async def measure_all(asked: argparse.Namespace, arms: Sequence[Arm], until: float) -> None:
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, read_bufsize=READ_BYTES
    ) as session:
        for arm in arms:  # compiles what a full batch needs
            await one(asked, session, arm, asked.levels[-1], None)
        for repeat in range(asked.repeats):
            for size in asked.levels:
                turn = (repeat + size) % len(arms)
                for arm in (*arms[turn:], *arms[:turn]):
                    if (repeat and arm.name in asked.once) or time.monotonic() > until:
                        continue
                    await one(asked, session, arm, size, repeat)
            if not repeat:
                await look_closer(asked, session, arms, until)


async def one(
    asked: argparse.Namespace, session: aiohttp.ClientSession, arm: Arm, size: int, repeat: int | None
) -> None:
    """One row; `repeat` is None for a window that only warms up."""
    if arm.threshold is not None:
        await set_threshold(session, arm.url, arm.threshold)
    # the more requests, the sooner they have filled the pool
    seconds = 0.3 if repeat is None else asked.windows[(size > 10) + (size > 128)]
    try:
        before = await gate_steps(session, arm)
        row = await window(session, arm.url, size, seconds)
        after = await gate_steps(session, arm)
        row["accept_length"] = await gauge(session, arm.url)
    except (RuntimeError, aiohttp.ClientError, TimeoutError) as problem:
        print(f"{arm.name} C={size}: {problem}"[:300], flush=True)
        return
    if repeat is not None:
        about = {"worker": asked.worker, "launch": arm.name, "arm": arm.name, "threshold": arm.threshold}
        counted = {f"{key}_steps": after[key] - before[key] for key in after}
        append(asked.out / "rows.jsonl", {**about, "repeat": repeat, **row, **counted})


async def gate_steps(session: aiohttp.ClientSession, arm: Arm) -> dict[str, int]:
    """What the gate has counted so far, by state; empty for a server that has none of ours."""
    if arm.threshold is None:
        return {}
    async with session.get(f"{arm.url}/get_server_info") as answer:
        gate = (await answer.json())["internal_states"][0]["speculative_gate"]
    return {state: int(gate[f"{state}_steps"]) for state in ("open", "closed")}


async def gauge(session: aiohttp.ClientSession, url: str) -> float | None:
    """The accept length of the last decode log line, drafts and bonus; None where nothing speculates.

    Streams say their verifications only in their last line, which a window does not wait for.
    """
    async with session.get(f"{url}/metrics") as answer:
        found = ACCEPT.search(await answer.text())
    return round(float(found.group(1)), 3) if found else None


async def look_closer(
    asked: argparse.Namespace, session: aiohttp.ClientSession, arms: Sequence[Arm], until: float
) -> None:
    for repeat in range(REOPENINGS):
        for gap in GAPS:
            for arm in arms:
                if arm.name in ("always-on", "gated") and time.monotonic() < until:
                    await reopen(asked, session, arm, gap, repeat)
    for size in asked.profile:
        speculates = ("always-on", "gated")
        for arm in arms:
            known = arm.name in speculates or (arm.name != "tuned" and size > asked.threshold)
            if time.monotonic() > until or not known:
                continue
            if arm.threshold is not None:
                await set_threshold(session, arm.url, arm.threshold)
            try:
                step = await profile_level(arm.url, size, asked.out / "traces" / f"{arm.name}-{size}")
            except (RuntimeError, aiohttp.ClientError, TimeoutError) as problem:
                print(f"trace of {arm.name} at C={size}: {type(problem).__name__}: {problem}", flush=True)
                return
            append(asked.out / "steps.jsonl", {"worker": asked.worker, "arm": arm.name, **step})


async def reopen(
    asked: argparse.Namespace, session: aiohttp.ClientSession, arm: Arm, gap: int, repeat: int
) -> None:
    """Twice T requests run for `gap` tokens, closed where there is a gate; half of them go, and the rest is
    measured from that moment on, with the catch-up in it."""
    size = asked.threshold
    if arm.threshold is not None:
        await set_threshold(session, arm.url, arm.threshold)
    log = asked.out / f"{arm.name}.log"
    earlier = log.stat().st_size if log.exists() else 0
    flows = [Flow() for _ in range(2 * size)]
    tasks = [asyncio.create_task(f.run(session, arm.url, tokens_for(2 * size))) for f in flows]
    limit = time.monotonic() + 60
    while not all(f.said and f.said[-1][1] >= gap for f in flows) and time.monotonic() < limit:
        await asyncio.sleep(0.02)
    await abort(session, arm.url, flows[size:])
    for task in tasks[size:]:
        task.cancel()
    began = time.monotonic()
    await asyncio.sleep(AFTER_S)
    seen = read_window(flows[:size], began, time.monotonic(), ())
    await abort(session, arm.url, flows[:size])
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await until_idle(session, arm.url)
    said = log.read_bytes()[earlier:].decode(errors="replace") if log.exists() else ""
    row = {"worker": asked.worker, "arm": arm.name, "repeat": repeat, "gap": gap, "C": size, **seen}
    row["accept_length"] = await gauge(session, arm.url)
    caught = [(int(tokens), int(requests), float(ms)) for tokens, requests, ms in REOPENED.findall(said)]
    append(asked.out / "reopen.jsonl", {**row, "caught_up": caught})


if __name__ == "__main__":
    raise SystemExit(main())
