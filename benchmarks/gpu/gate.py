"""The gate of one release and worker on one GPU: `python3 -m benchmarks.gpu.gate WORKER STAGE ... --site S`.

Stages, each with a server of its own:
  no-spec      the unmodified install without speculation
  always-on    the unmodified install with EAGLE-3
  native       the unmodified install with SGLang's own gate at T (0.5.14 and later)
  gated        the patched one: arms gated (T), tuned (--tuned), always-open and always-closed by live
               control, then --smokes, all with dummy weights and a simulated accept length
  naive        a gate as it is written first by hand, which has to die at C=10
  pair         the patched one with a small trained pair (--pair): the whole smoke test
A stage may be named twice: that is the A/A noise between two launches of the same thing.
Writes OUT/<worker>-rows.jsonl and OUT/<worker>-steps.jsonl (--profile) as it goes, OUT/*.log, and prints
what it saw.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from benchmarks.gpu.levels import measure, set_threshold, wave
from benchmarks.gpu.serving import Failed, Server, common, serve
from benchmarks.gpu.step_profile import profile_level
from specops.steps.gate import native_config

ROOT = Path(__file__).resolve().parents[2]
RELEASE, THRESHOLD = "0.5.12.post1", 5
ALWAYS = 100_000
TOKENS = 256
LEVELS = (1, 2, 5, 6, 10, 30, 64)
ARMS = ("gated", "always-open", "always-closed")
FILES = ROOT / "patches" / "batch-gate"
SPEC = {
    "v1": {"num-steps": 5, "eagle-topk": 4, "num-draft-tokens": 16},
    "v2": {"num-steps": 3, "eagle-topk": 1, "num-draft-tokens": 4},
}
SHARED = ("--mem-fraction-static", "0.93", "--max-total-tokens")
"""Before the tokens that a server may hold: several on one card each count what is free when they start."""
PAIR_TOKENS = 60_000
DUMMY = ("--load-format", "dummy", "--mem-fraction-static", "0.8")


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",") if word]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("worker", choices=SPEC)
    parser.add_argument(
        "stages", nargs="+", choices=("no-spec", "always-on", "native", "gated", "naive", "pair")
    )
    parser.add_argument("--release", default=RELEASE)
    parser.add_argument("--threshold", type=int, default=THRESHOLD)
    parser.add_argument("--tuned", type=int, metavar="T", help="another threshold, the one worth having")
    parser.add_argument(
        "--arms", type=lambda text: text.split(","), default=ARMS, help="of the stage `gated`"
    )
    parser.add_argument("--levels", type=numbers, default=LEVELS)
    parser.add_argument(
        "--profile", type=numbers, default=(), metavar="C,...", help="levels to trace a step at"
    )
    parser.add_argument(
        "--smokes", type=numbers, metavar="T,...", help="smoke tests of `gated` (T and the top)"
    )
    parser.add_argument("--running", type=int, default=64, help="requests that a server admits and captures")
    parser.add_argument("--budget", type=int, default=90, help="s of a smoke test")
    parser.add_argument("--pool", type=int, metavar="TOKENS", help="so much only, beside other servers")
    parser.add_argument("--window", type=float, metavar="S", help="steady windows instead of waves")
    parser.add_argument("--site", type=Path, required=True, help="folder that holds the pristine sglang/")
    parser.add_argument("--models", type=Path, required=True, help="target/ and draft/ without weights")
    parser.add_argument("--pair", type=Path, help="target/ and draft/ of a trained pair")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gpu", default="0")
    parser.add_argument("--port", type=int, default=31599)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--until", type=float, default=560, help="seconds; no stage starts after 0.75 of it")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the server is ended on the way out
    began = time.monotonic()
    for number, stage in enumerate(asked.stages):
        if time.monotonic() - began > 0.75 * asked.until:
            print(f"{asked.worker} {stage}: left out, no time", flush=True)
            continue
        try:
            run_stage(asked, stage, f"{asked.worker}-{stage}-{number}")
        except (Failed, OSError, RuntimeError, ValueError) as error:
            print(f"{asked.worker} {stage}: {error}", flush=True)
    return 0


def run_stage(asked: argparse.Namespace, stage: str, name: str) -> None:
    models = asked.pair if stage == "pair" else asked.models
    arguments = [*common(asked.release, asked.running), "--model-path", str(models / "target")]
    if stage == "pair":
        arguments += [*SHARED, str(PAIR_TOKENS)]
    elif asked.pool:
        arguments += ["--load-format", "dummy", *SHARED, str(asked.pool)]
    else:
        arguments += DUMMY
    if stage != "no-spec":
        arguments += ["--speculative-algorithm", "EAGLE3"]
        arguments += ["--speculative-draft-model-path", str(models / "draft")]
        for key, value in SPEC[asked.worker].items():
            arguments += [f"--speculative-{key}", str(value)]
    if stage in ("gated", "pair"):
        arguments += ["--speculative-disable-batch-threshold", str(asked.threshold)]
    if stage == "native":
        gate = asked.out / f"{name}.json"
        gate.write_bytes(native_config(SPEC[asked.worker]["num-steps"], asked.threshold))
        arguments += ["--speculative-adaptive", "--speculative-adaptive-config", str(gate)]
    if stage == "pair":
        arguments += ["--dtype", "bfloat16"]  # the kernels of norms know no float32
    env = {"CUDA_VISIBLE_DEVICES": asked.gpu}
    if stage not in ("no-spec", "pair"):
        env["SGLANG_SIMULATE_ACC_LEN"] = "2.5"
    tree = make_tree(asked, stage)
    with serve(name, asked.site, tree, arguments, env, asked.port, asked.out) as server:
        print(f"{name}: up in {server.ready_s:.0f} s", flush=True)
        STAGES[stage](asked, server, name)


def make_tree(asked: argparse.Namespace, stage: str) -> Path | None:
    """A changed copy of the package; None where the install itself is served."""
    if stage in ("no-spec", "always-on", "native"):
        return None
    kind = "naive" if stage == "naive" else "gated"
    tree = Path(tempfile.gettempdir()) / f"gate-{asked.release}-{asked.worker}-{kind}"
    if tree.exists():
        return tree
    shutil.copytree(asked.site / "sglang", tree / "sglang")
    if stage == "naive":
        naive = str(Path(__file__).parent / "naive_gate.diff")
        apply = ["git", "apply", "--unsafe-paths", f"--directory={tree / 'sglang'}", naive]
        subprocess.run(apply, check=True, cwd="/")
        return tree
    sys.path.append(str(asked.site))  # PyYAML, where this python3 has none: SGLang needs it too
    from specops.config.patch import load_patch
    from specops.steps.patch import build_changes

    package = tree / "sglang"

    def read(path: str) -> bytes | None:
        return (package / path).read_bytes() if (package / path).is_file() else None

    for change in build_changes(load_patch(FILES), asked.release, read):
        (package / change.path).write_bytes(change.after or b"")
    return tree


def run_levels(asked: argparse.Namespace, server: Server, name: str) -> None:
    """One arm, or all that the server's gate can play."""
    stage = name.split("-", 1)[1].rsplit("-", 1)[0]
    arms: dict[str, int | None] = {stage: None}
    if stage == "gated":
        known = {"gated": asked.threshold, "tuned": asked.tuned, "always-open": ALWAYS, "always-closed": 0}
        arms = {arm: known[arm] for arm in asked.arms}
    rows = asyncio.run(
        measure(server.url, arms, asked.levels, asked.repeats, asked.tokens, window_s=asked.window)
    )
    with open(asked.out / f"{asked.worker}-rows.jsonl", "a") as out:
        for row in rows:
            whole = {"worker": asked.worker, "launch": name, "ready_s": round(server.ready_s, 1), **row}
            out.write(json.dumps(whole) + "\n")
    if stage == "gated":
        asyncio.run(put_threshold(server.url, asked.threshold))
    with open(asked.out / f"{asked.worker}-steps.jsonl", "a") as out:
        for size in asked.profile:
            step = asyncio.run(profile_level(server.url, size, asked.out / "traces" / f"{name}-{size}"))
            out.write(json.dumps({"worker": asked.worker, "arm": stage, "launch": name, **step}) + "\n")


def run_gated(asked: argparse.Namespace, server: Server, name: str) -> None:
    run_levels(asked, server, name)
    for threshold in asked.smokes or (asked.threshold, asked.levels[-1] - 5):
        asyncio.run(put_threshold(server.url, threshold))
        smoke(asked, server, f"{name}-T{threshold}", threshold, ["S0", "S2", "S3", "S5", "S6"], exact=False)
    show_gate(server)


def run_naive(asked: argparse.Namespace, server: Server, name: str) -> None:
    for size in (1, 5, 10):
        row = asyncio.run(one_wave(server.url, size))
        lived = server.process.poll() is None
        print(f"{name}: C={size}: {row['ok']} of {size} answered, server {'lives' if lived else 'is dead'}")
    for line in server.log.read_text(errors="replace").splitlines():
        if "Error" in line:
            print(f"{name}: {line.strip()[:200]}", flush=True)
            break


def run_pair(asked: argparse.Namespace, server: Server, name: str) -> None:
    for repeat in range(2):
        smoke(asked, server, f"{name}-{repeat}", asked.threshold, None, exact=False)
    show_gate(server)


STAGES = {
    "gated": run_gated,
    "naive": run_naive,
    "pair": run_pair,
    "no-spec": run_levels,
    "always-on": run_levels,
    "native": run_levels,
}


async def put_threshold(url: str, threshold: int) -> None:
    import aiohttp

    async with aiohttp.ClientSession() as session:
        await set_threshold(session, url, threshold)


async def one_wave(url: str, size: int) -> dict[str, Any]:
    import aiohttp

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        return await wave(session, url, size, 128)


def smoke(
    asked: argparse.Namespace,
    server: Server,
    name: str,
    threshold: int,
    checks: list[str] | None,
    *,
    exact: bool,
) -> None:
    """One smoke test as the product runs it; its result goes to OUT/<name>-smoke.json."""
    from specops.connect.payload import agent_zip

    spec = {
        "url": server.url,
        "threshold": threshold,
        "gate": "batch-gate",
        "release": asked.release,
        "num_steps": SPEC[asked.worker]["num-steps"],
        "topk": SPEC[asked.worker]["eagle-topk"],
        "log": str(server.log),
        "checks": checks,
        "budget_s": asked.budget,
        "token_gap_s": 60,
        "exact_outputs": exact,
        "graphs": True,
        "shared": checks is not None,
    }
    packed = asked.out / "agent.zip"
    packed.write_bytes(agent_zip())
    done = subprocess.run(
        [sys.executable, "-B", str(packed), "child-smoke"],
        input=json.dumps(spec), capture_output=True, text=True, timeout=asked.budget + 60, check=False,
        env={**os.environ, "PYTHONPATH": str(asked.site)},
    )  # fmt: skip
    packed.unlink()
    results = [json.loads(line) for line in done.stdout.splitlines() if '"event": "result"' in line]
    if not results:
        print(f"{name}: the smoke test ended without a result: {done.stderr[-600:]}", flush=True)
        return
    value = results[-1]["value"]
    value.pop("timeline", None)
    (asked.out / f"{name}-smoke.json").write_text(json.dumps(value))
    spent = sum(check["seconds"] for check in value["checks"])
    print(f"{name}: smoke T={threshold}: {value['verdict']} in {spent:.1f} s", flush=True)
    for check in value["checks"]:
        print(
            f"    {check['id']} {check['verdict']:12} {check['seconds']:5.1f} s  {check['summary'][:150]}",
            flush=True,
        )


def show_gate(server: Server) -> None:
    with urllib.request.urlopen(f"{server.url}/get_server_info", timeout=20) as answer:  # noqa: S310
        gate = json.load(answer)["internal_states"][0].get("speculative_gate", {})
    print({key: value for key, value in gate.items() if key != "ring"}, flush=True)
    lines = server.log.read_text(errors="replace").splitlines()
    for mark in ("Speculative gate captured", "Speculative gate caught", "gate: closed"):
        for line in [line for line in lines if mark in line][-2:]:
            print(f"    {line[:220]}", flush=True)
    bad = [line for line in lines if "Traceback" in line or "leak" in line or "Scheduler hit" in line]
    print(f"    bad lines: {len(bad)} {bad[:2]}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
