"""Proves the batch-gate patch on real servers on the CPU: `python -m benchmarks.gate_proof [CASE ...]`.

One row a case (release and worker). The judge of open and closed is not the gate: the lab's kernels write
down every model forward of target and draft, and this file reads what happened between them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks import gate_labs
from benchmarks.gate_load import (
    Answer,
    Client,
    ask_in_waves,
    client,
    crossed,
    crossing_prompts,
    disturb_victim,
    soak,
)
from benchmarks.gate_rows import case_of, keep_row, problems, today
from benchmarks.gated_server import OLDER_LOG_INTERVAL, GatedServer, smoke
from specops.config.patch import load_patch
from specops.config.proof import Proof, keep_proof, patch_bytes
from specops.lab import older
from specops.lab.wheels import LabError, default_home
from specops.steps.gate import parse_release

ROOT = Path(__file__).resolve().parents[1]
BAD_LINES = re.compile(
    r"memory leak|leak detected|Traceback|ZeroDivision|Scheduler hit an exception|AssertionError"
)
THRESHOLD = 5
READY_S = 900
"""For a start beside other work; a server that died is noticed at once."""
V2_ALONE = (0, 5, 13, 0)
"""From here on EAGLEWorkerV2 is the only worker."""

PATCH = ROOT / "patches" / "batch-gate"


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    release: str
    worker: str
    steps: int
    topk: int
    draft_tokens: int

    @property
    def name(self) -> str:
        return case_of({"release": self.release, "worker": self.worker, "topk": self.topk})


def cases_of(release: str) -> list[Case]:
    """Each worker of a release, and trees wherever it can draft them: v1 until 0.5.12.post1, then v2."""
    trees = "v2" if parse_release(release) >= V2_ALONE else "v1"
    return [
        Case(release=release, worker=trees, steps=5, topk=4, draft_tokens=16),
        Case(release=release, worker="v2", steps=3, topk=1, draft_tokens=4),
    ]


CASES = tuple(case for release in gate_labs.RELEASES for case in cases_of(release))


@dataclass(frozen=True, kw_only=True, slots=True)
class Forwards:
    """What the server's models did, counted outside of the gate. A step is a decode step of the target."""

    closed_steps: int
    open_steps: int
    crossings: int
    draft_while_closed: int


def read_forwards(lines: Iterable[str]) -> Forwards:
    """Attribute draft forwards to steps: those before a verification and the extension after it are its own.

    A draft that decodes before a plain step, or extends after one, ran while the gate was closed. `EXTEND` of
    the draft belongs to a prefill or a catch-up; both follow a target's EXTEND.
    """
    closed = opened = crossings = while_closed = pending = 0
    last_step = last_target = ""
    for line in lines:
        role, mode, _ = line.split()
        if role == "draft":
            if mode == "DECODE":
                pending += 1
            elif mode.startswith("DRAFT_EXTEND"):
                while_closed += last_target != "TARGET_VERIFY"
            else:
                while_closed += last_target != "EXTEND"
            continue
        last_target = mode
        if mode == "EXTEND":
            continue
        if mode == "DECODE":
            closed, while_closed = closed + 1, while_closed + pending
        else:
            opened += 1
        crossings += bool(last_step) and mode != last_step
        last_step, pending = mode, 0
    return Forwards(
        closed_steps=closed, open_steps=opened, crossings=crossings, draft_while_closed=while_closed
    )


@dataclass(frozen=True, kw_only=True)
class Load:
    """How much a case is asked."""

    prompts: int = 32
    victims: int = 3
    soak_s: float = 600
    smoke: tuple[str, ...] = ()
    """Checks of the smoke test to run on the gated server after all else."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """Where a case runs, and how much."""

    lab: older.OlderLab
    case: Case
    models: Path
    work: Path
    port: int
    load: Load

    def serve(self, name: str, *, gated: bool, **extra: str) -> Any:
        """A server: gated and patched, or the untouched wheel without speculation."""
        arguments = [*gate_labs.arguments(self.lab, self.models, self.port), "--disable-overlap-schedule"]
        trees: list[Path] = []
        if gated:
            case = self.case
            if case.worker == "v2":
                arguments.remove("--disable-overlap-schedule")
                extra = {**self.lab.release.v2_env, **extra}
            arguments += older.draft_arguments(
                self.models, steps=case.steps, topk=case.topk, draft_tokens=case.draft_tokens
            )
            arguments += ["--speculative-disable-batch-threshold", str(THRESHOLD)]
            arguments += ["--decode-log-interval", str(OLDER_LOG_INTERVAL)]
            trees = [older.patched_copy(self.lab, load_patch(PATCH), self.work / "patched")]
        forwards = self.work / f"{name}.forwards"
        forwards.unlink(missing_ok=True)
        env = gate_labs.environment(self.lab, *trees, LAB_FORWARDS=str(forwards), **extra)
        log = self.work / f"{name}.log"
        return older.serve(self.lab, arguments, self.port, log, env, deadline_s=READY_S)


FEATURES: dict[str, dict[str, Any]] = {
    "penalties": {"frequency_penalty": 0.7, "presence_penalty": 0.3},
    "stop string": {"stop": [" self"], "ignore_eos": False},
    "grammar": {"regex": "( the| copy| code| use){10,30}", "ignore_eos": False},
    "logprobs": {"body": {"return_logprob": True, "top_logprobs_num": 2}},
}


FIRST_WITH = {"penalties": "0.5.11", "logprobs": "0.5.10", "grammar": "0.5.6"}
"""EAGLEWorkerV2, unpatched: until then it ignores penalties and grammars and dies of logprobs."""


def not_in_stock(case: Case) -> list[str]:
    at = parse_release
    missing = [name for name, first in FIRST_WITH.items() if at(case.release) < at(first)]
    return missing if case.worker == "v2" else []


async def feature_answers(server: Client, without: Iterable[str] = ()) -> dict[str, list[Answer]]:
    """Eight requests a feature, together: they run above the threshold and, as they end, below it."""
    found: dict[str, list[Answer]] = {}
    for name, more in FEATURES.items():
        if name not in without:
            asked = [server.ask(f"feature {n} of this work", 40 + 6 * n, **dict(more)) for n in range(8)]
            found[name] = list(await asyncio.gather(*asked))
    return found


def same_feature(name: str, got: list[Answer], want: list[Answer]) -> bool:
    """Tokens, and logprobs within float32 noise. Stock speculation ends a grammar one token early."""
    for one, other in zip(got, want, strict=True):
        length = min(len(one.tokens), len(other.tokens)) if name == "grammar" else None
        if one.tokens[:length] != other.tokens[:length] or abs(len(one.tokens) - len(other.tokens)) > 1:
            return False
        if name == "logprobs":
            pairs = zip(one.meta["output_token_logprobs"], other.meta["output_token_logprobs"], strict=True)
            if any(abs(mine[0] - theirs[0]) > 1e-3 for mine, theirs in pairs):
                return False
    return True


Reference = tuple[list[Answer], dict[str, list[Answer]]]
"""What a release answers without speculation: crossing prompts one after another, and each feature."""


async def reference(bench: Bench) -> Reference:
    async with client(bench.port, bench.case.release) as server:
        answers = [await server.ask(text, tokens) for text, tokens in crossing_prompts(bench.load.prompts)]
        return answers, await feature_answers(server)


async def gated(bench: Bench, want: Reference) -> dict[str, Any]:
    longest = bench.case.steps + 1
    async with client(bench.port, bench.case.release) as server:
        got = await ask_in_waves(server, crossing_prompts(bench.load.prompts))
        features = await feature_answers(server, not_in_stock(bench.case))
        differ = [name for name, found in features.items() if not same_feature(name, found, want[1][name])]
        live = await live_control(server)
        victims = [await disturb_victim(server, seed, longest) for seed in range(1, bench.load.victims + 1)]
        before = (await server.gate())["switches"]
        seen = await soak(server, bench.load.soak_s)
        soak_crossings = (await server.gate())["switches"] - before
        await asyncio.sleep(1)
        held = await server.tokens_held()
        again = await server.ask(*crossing_prompts()[0])
        gate = await server.gate()
        shown = await server.metrics()
    counters = ("open_steps", "closed_steps", "switches")
    return {
        "crossing": len(got),
        "requests": len(got) + 8 * len(features) + sum(seen.values()),
        "failed": seen["failed"],
        "aborted": seen["aborted"],
        "soak_crossings": soak_crossings,
        "outputs_equal": all(map(server.agree, [*got, again], [*want[0], want[0][0]])),
        "crossed_mid_request": sum(map(crossed, got)),
        "features_equal": [name for name in features if name not in differ],
        "features_differ": differ,
        "live_control": live,
        "victims": victims,
        "kv_after": held,
        "gate": {key: gate[key] for key in (*counters, "catch_ups", "catch_up_tokens", "catch_up_seconds")},
        "metrics_agree": all(shown[f"sglang:speculative_gate_{key}_total"] == gate[key] for key in counters),
    }


async def live_control(server: Client) -> bool:
    """0 closes for one request, a large number opens for ten, nonsense is refused; each is read back."""
    refused = not any([await server.set_threshold(value) for value in (-1, "five", 2.5, None)])
    closed = await server.set_threshold(0)
    one = await server.ask("always closed", 40)
    opened = await server.set_threshold(1000)
    await server.ask("until the hysteresis has passed", 40)
    ten = await asyncio.gather(*[server.ask(f"always open {n}", 40) for n in range(10)])
    wide = (await server.gate())["threshold"] == 1000
    back = await server.set_threshold(THRESHOLD)
    plain = one.meta["spec_verify_ct"] == one.meta["completion_tokens"] - 1  # the first is the prefill's
    return refused and closed and plain and opened and wide and back and min(map(steps_of, ten)) > 1.2


def steps_of(answer: Answer) -> float:
    return float(answer.meta["completion_tokens"] / answer.meta["spec_verify_ct"])


def prove(bench: Bench, known: dict[str, Reference]) -> dict[str, Any]:
    """The case's row. `known` keeps the references of releases for their other worker."""
    started = time.monotonic()
    if bench.case.release not in known:
        with bench.serve("plain", gated=False):
            known[bench.case.release] = asyncio.run(reference(bench))
    want = known[bench.case.release]
    with bench.serve("gated", gated=True):
        row = asyncio.run(gated(bench, want))
        written = (bench.work / "gated.forwards").read_text(encoding="utf-8").splitlines()
        forwards = read_forwards(written)
        if bench.load.smoke:
            row["smoke"] = run_smoke(bench, len(written))
    log = (bench.work / "gated.log").read_text(encoding="utf-8", errors="replace")
    served = log.split("fired up and ready", 1)[-1]
    case = bench.case
    return {
        "release": case.release, "worker": case.worker, "topk": case.topk, "steps": case.steps,
        "closed_steps": forwards.closed_steps, "open_steps": forwards.open_steps,
        "crossings": forwards.crossings, "draft_forwards_while_closed": forwards.draft_while_closed,
        "leak_lines": len(BAD_LINES.findall(served)), "soak_s": bench.load.soak_s,
        "seconds": round(time.monotonic() - started, 1), **row,
    }  # fmt: skip


def run_smoke(bench: Bench, earlier: int) -> dict[str, Any]:
    """Each check's verdict on the gated server, and what its models did meanwhile (lines after `earlier`)."""
    case = bench.case
    server = GatedServer(
        release=case.release, python=bench.lab.python, port=bench.port, log=bench.work / "gated.log",
        gate="batch-gate", num_steps=case.steps, topk=case.topk,
    )  # fmt: skip
    checks = smoke(server, checks=list(bench.load.smoke))["checks"]
    written = (bench.work / "gated.forwards").read_text(encoding="utf-8").splitlines()
    forwards = read_forwards(written[earlier:])
    return {
        "verdicts": {check["id"]: check["verdict"] for check in checks},
        "seconds": round(sum(check["seconds"] for check in checks), 1),
        "said": {check["id"]: check["summary"] for check in checks},
        "closed_steps": forwards.closed_steps,
        "draft_forwards_while_closed": forwards.draft_while_closed,
    }


def make_models(lab: older.OlderLab, folder: Path) -> Path:
    if not (folder / "draft" / "model.safetensors").is_file():
        pair = ROOT / "specops" / "lab" / "pair.py"
        subprocess.run([str(lab.python), str(pair), str(folder)], check=True, capture_output=True)
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(case.name for case in CASES))
    parser.add_argument("--soak", type=float, default=Load.soak_s, metavar="SECONDS")
    parser.add_argument("--prompts", type=int, default=Load.prompts, help="requests that cross the gate")
    parser.add_argument("--victims", type=int, default=Load.victims, help="long requests that are disturbed")
    parser.add_argument(
        "--smoke", default="S0,S1,S3,S2,S6", metavar="CHECKS", help="of the smoke test, afterwards"
    )
    parser.add_argument("--home", type=Path, default=default_home())
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "specops-gate-proof")
    parser.add_argument("--port", type=int, default=31590)
    options = parser.parse_args()
    unknown = set(options.cases) - {case.name for case in CASES}
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    chosen = [case for case in CASES if not options.cases or case.name in options.cases]
    chosen.sort(key=lambda case: options.cases.index(case.name) if options.cases else 0)
    known: dict[str, Reference] = {}
    return 1 if any([run_case(case, options, known) for case in chosen]) else 0


def run_case(case: Case, options: argparse.Namespace, known: dict[str, Reference]) -> list[str]:
    """Prove one case, keep its row and its proof, and say what is wrong with it."""
    work = options.work / case.name
    work.mkdir(parents=True, exist_ok=True)
    lab = gate_labs.prepare(case.release, options.home)
    models = make_models(lab, options.work / "models")
    row: dict[str, Any] = {"release": case.release, "worker": case.worker, "topk": case.topk}
    try:
        load = Load(
            prompts=options.prompts,
            victims=options.victims,
            soak_s=options.soak,
            smoke=tuple(filter(None, options.smoke.split(","))),
        )
        bench = Bench(lab=lab, case=case, models=models, work=work, port=options.port, load=load)
        row = prove(bench, known)
        wrong = problems(row)
    except (LabError, aiohttp.ClientError, KeyError) as error:
        wrong = [reason_in(work / "gated.log") or reason_in(work / "plain.log") or str(error)]
        row["failed_with"] = wrong[0]
    keep(lab, case, row, wrong)
    print(case.name, "proved" if not wrong else f"NOT proved: {'; '.join(wrong)}", flush=True)
    print(json.dumps(row), flush=True)
    return wrong


def keep(lab: older.OlderLab, case: Case, row: dict[str, Any], wrong: list[str]) -> None:
    """The row among the results, and what it proves beside the patch."""
    used = {f"{case.release} {name}": version for name, version in gate_labs.versions(lab).items()}
    keep_row(row, used, [one.name for one in CASES])
    proof = Proof(
        release=case.release, worker=case.worker, topk=case.topk,
        level="applies only" if wrong else "cpu",
        bytes=patch_bytes(load_patch(PATCH), case.release),
        date=today(), closed_steps=row.get("closed_steps", 0), reason="; ".join(wrong),
    )  # fmt: skip
    keep_proof(PATCH, proof)


def reason_in(log: Path) -> str:
    """The last exception that a server wrote, in its own words."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    raised = [line for line in lines if re.match(r"(?:\w+\.)*\w*(?:Error|Exception)\b", line)]
    return raised[-1] if raised else ""


if __name__ == "__main__":
    raise SystemExit(main())
