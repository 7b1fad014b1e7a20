"""Failures induced in a real server, and what was made of them: `python -m benchmarks.diagnose`.

Each server is started, awaited, smoked and stopped by the agent's own operations. When the cause showed is
seen from outside: by the strike's own clock, a second reader of the log, a pidfd of the launcher.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import specops
from benchmarks import broken_models
from benchmarks.failures import FAILURES, HELD_PORT, LOADER, Failure
from benchmarks.gated_server import STEPS, THRESHOLD, prepare
from benchmarks.strikes import SQUATTERS, Running, hold
from specops.connect.payload import agent_zip
from specops.lab.environment import Environment
from specops.lab.processes import free_port
from specops.lab.server import QUIET, server_argv
from specops.remote import launch, procs, ready, smoke_op, stop
from specops.remote.context import Context, OpFailed
from specops.steps.diff import apply_diff

Json = Any
ROOT = Path(__file__).resolve().parents[1]
RESULT = Path(__file__).resolve().parent / "results" / "diagnose.json"
RELEASE = "0.5.18"
TOKEN_GAP_S = 20
ACCESS = re.compile(r" HTTP/1\.1\" \d{3}")
PATIENT_S = 400.0


@dataclass(kw_only=True, slots=True)
class Eye:
    """Looks at a server from outside: when the line was there, when the launcher ended."""

    log: Path
    literal: str
    line_at: float | None = None
    death_at: float | None = None
    strike_at: float | None = None
    grew_at: float | None = None
    """When something was last written to the log that is no answered request."""
    clocks: dict[str, float] = field(default_factory=lambda: {"progress_s": PATIENT_S, "cap_s": 900.0})
    """Of the wait. Patient until the moment of the strike: a busy machine takes long to get there."""
    over: threading.Event = field(default_factory=threading.Event)

    def watch_line(self) -> None:
        words, seen, rest = re.compile(self.literal), 0, ""
        while not self.over.is_set():
            with contextlib.suppress(OSError), open(self.log, errors="replace") as log:
                log.seek(seen)
                more = log.read()
                seen = log.tell()
                *lines, rest = (rest + more).split("\n")
                if more and any(line and not ACCESS.search(line) for line in [*lines, rest]):
                    self.grew_at = time.time()
                if self.line_at is None and any(map(words.search, [*lines, rest])):
                    self.line_at = time.time()
            time.sleep(0.01)

    def watch_death(self, pid: int) -> None:
        handle = os.pidfd_open(pid)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        while not self.over.is_set():
            if poll.poll(200):
                self.death_at = time.time()
                break
        os.close(handle)

    def strike(self, failure: Failure, running: Running) -> None:
        if failure.strike:
            with contextlib.suppress(TimeoutError):  # the round was over before its moment came
                self.strike_at = failure.strike(running)
                self.clocks["progress_s"] = PATIENT_S if failure.serves else failure.progress_s

    def seen_at(self, failure: Failure) -> float | None:
        """A clock counts from the last that was heard: of a load by its log, of a test by the strike."""
        heard_at = self.strike_at if failure.serves else self.grew_at
        if failure.seen == "clock" and heard_at is not None:
            return heard_at + failure.progress_s
        known = {"strike": self.strike_at, "death": self.death_at}
        return known.get(failure.seen, self.line_at)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    environment: Environment
    models: Path
    nccl_port: int

    def run(self, failure: Failure, work: Path) -> dict[str, Json]:
        ctx, journal = self.make_context(failure.id, work)
        port = free_port()
        spec = self.make_spec(failure, ctx, port, work)
        if "--nccl-port" in failure.flags:
            hold(self.nccl_port)
        began = time.time()
        error: OpFailed | None = None
        eye = Eye(log=ctx.deploy_dir / "server.log", literal=failure.seen)
        try:
            note = launch.launch(ctx, {"launch": spec})
            self._look(eye, failure, note, port)
            self._await(ctx, failure, port, eye.clocks)
        except OpFailed as failed:
            error = failed
        finally:
            told_at = time.time()
            eye.over.set()
            left = procs.carriers(procs.scan_processes(), ctx.deploy_id)
            while SQUATTERS:
                SQUATTERS.pop().close()
            stopped = stop.kill(ctx, {"cookie": ctx.deploy_id, "port": port})["stopped"]
        row = judge(failure, error, journal, eye, told_at)
        row |= {"seconds": round(told_at - began, 1), "left_to_stop": len(left), "stopped": len(stopped)}
        row["leftovers"] = leftovers(ctx.deploy_id, port)
        shutil.copyfile(eye.log, work / f"{failure.id}.log")
        return row

    def make_context(self, name: str, work: Path) -> tuple[Context, list[dict[str, Json]]]:
        folder = work / "state" / "instances" / "i" / "deploys" / name
        folder.mkdir(parents=True)
        packed = work / "agent.zip"
        packed.write_bytes(agent_zip())
        journal: list[dict[str, Json]] = []
        instance = {"root": str(self.environment.package), "python": str(self.environment.python)}
        ctx = Context(
            deploy_id=name,
            deploy_dir=folder,
            store_dir=work / "state" / "store",
            agent_zip=packed,
            instance=instance,
            emit=lambda event: None,
            record=lambda entry: journal.append({**entry, "at": time.time()}),
            aborted=lambda: "",
        )
        return ctx, journal

    def make_spec(self, failure: Failure, ctx: Context, port: int, work: Path) -> dict[str, Json]:
        target, draft = self.models / "target", self.models / "draft"
        if failure.target:
            target = broken_models.copy(target, work / "target")
            failure.target(target, self.environment.python)
        if failure.draft:
            draft = broken_models.copy(draft, work / "draft")
            failure.draft(draft, self.environment.python)
        argv = server_argv(self.environment.python, target, draft, port)
        flags = {
            flag: str(self.nccl_port) if value == HELD_PORT else value
            for flag, value in failure.flags.items()
        }
        argv = [*failure.before, *with_flags(argv, flags)]
        if failure.gate:
            (work / "gate.json").write_text(json.dumps(failure.gate))
            argv += ["--speculative-adaptive", "--speculative-adaptive-config", str(work / "gate.json")]
        env = {**QUIET, **failure.env}
        if failure.code or failure.patch:
            env["PYTHONPATH"] = str(self._package(failure, work / "tree"))
        if LOADER in failure.code:
            (work / "slow").write_bytes(os.urandom(4 << 20))
            env["INDUCED_SLOW_FILE"] = str(work / "slow")
        return {
            "argv": argv,
            "cwd": str(ctx.deploy_dir),
            "env": {"base": "login", "set": env, "path": [str(self.environment.python.parent)]},
            "port": port,
            "cookie": ctx.deploy_id,
            "log": "{deploy_dir}/server.log",
        }

    def _package(self, failure: Failure, into: Path) -> Path:
        """A copy of the install's package with the failure's code in it, to go on the module path."""
        package, copy = self.environment.package, into / "sglang"
        # the bytecode comes along: it is checked against its source's time, and a link keeps that
        shutil.copytree(package, copy, copy_function=os.link)
        changed = {path: (package / path).read_bytes() + text.encode() for path, text in failure.code.items()}
        for diff in (ROOT / "patches" / failure.patch / RELEASE).glob("*.diff") if failure.patch else ():
            text = diff.read_text(encoding="utf-8")
            path = text.splitlines()[0].removeprefix("--- a/")
            changed[path] = apply_diff((package / path).read_bytes(), text, path) or b""
        for path, data in changed.items():
            broken_models.replace(copy / path, data)
        return into

    def _look(self, eye: Eye, failure: Failure, note: Mapping[str, Json], port: int) -> None:
        running = Running(pid=int(note["pid"]), port=port, log=eye.log, ended=eye.over.is_set)
        for target, words in (
            (eye.watch_line, ()),
            (eye.watch_death, (running.pid,)),
            (eye.strike, (failure, running)),
        ):
            threading.Thread(target=target, args=words, daemon=True).start()

    def _await(self, ctx: Context, failure: Failure, port: int, clocks: Mapping[str, float]) -> None:
        gate = "native" if failure.gate else "none"
        args = {"port": port, "cookie": ctx.deploy_id, "ready": clocks, "expect": {}, "gate": gate}
        ready.await_server(ctx, args)
        if not failure.serves:
            return
        smoke = {
            "url": f"http://127.0.0.1:{port}",
            "threshold": THRESHOLD,
            "gate": gate,
            "release": RELEASE,
            "num_steps": STEPS,
            "topk": 1,
            "log": "{deploy_dir}/server.log",
            "checks": ["S0", "S1", "S3"],
            "budget_s": 120,
            "token_gap_s": TOKEN_GAP_S,
            "exact_outputs": True,
        }
        smoke_op.run_step(ctx, {**smoke, "python": str(self.environment.python), "cookie": ctx.deploy_id})


def with_flags(argv: list[str], flags: Mapping[str, str | None]) -> list[str]:
    out, skip = [], False
    for word in argv:
        if skip or word in flags:
            skip = word in flags
            continue
        out.append(word)
    return [*out, *(word for flag, value in flags.items() if value is not None for word in (flag, value))]


def judge(
    failure: Failure,
    error: OpFailed | None,
    journal: list[dict[str, Json]],
    eye: Eye,
    told_at: float,
) -> dict[str, Json]:
    verdicts = [entry for entry in journal if entry["entry"] == "verdict"]
    cause = verdicts[0]["cause"] if verdicts else {}
    found = cause.get("id") or (error.code if error else None)
    message = cause.get("message") or (error.message if error else "")
    whole = f"{error.message if error else ''} {message}"
    seen_at = eye.seen_at(failure)
    at = verdicts[0]["at"] if verdicts else told_at
    right = found in failure.expect and bool(re.search(failure.says, whole, re.S))
    if not failure.expect:
        right = error is None
    return {
        "failure_class": failure.failure_class,
        "failure": failure.id,
        "cause": failure.cause,
        "counted_from": failure.seen,
        "verdict": found,
        "rank": cause.get("rank"),
        "message": message[:400],
        "action": error.next_command if error else "",
        "verdict_s": None if error is None or seen_at is None else round(at - seen_at, 2),
        "root_cause_right": right,
    }


def leftovers(cookie: str, port: int) -> list[str]:
    """What a stopped server should not leave: processes, its port."""
    found = [f"process {pid}" for pid in procs.carriers(procs.scan_processes(), cookie)]
    return [*found, *([] if procs.port_is_free(port) else [f"port {port}"])]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="the id of a failure; again for more")
    parser.add_argument("--keep", action="store_true", help="add to the rows that are there")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--logs", type=Path, help="a folder to keep the servers' logs in")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))
    environment, models = prepare(RELEASE)
    bench = Bench(environment=environment, models=models, nccl_port=free_port())
    chosen = [f for f in FAILURES if not asked.only or f.id in asked.only]
    rows = json.loads(asked.out.read_text())["rows"] if asked.keep and asked.out.exists() else []
    for failure in chosen:
        with tempfile.TemporaryDirectory() as work:
            row = bench.run(failure, Path(work))
            if asked.logs:
                asked.logs.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(Path(work) / f"{failure.id}.log", asked.logs / f"{failure.id}.log")
        rows.append(row)
        right = "right" if row["root_cause_right"] else "WRONG"
        verdict = row["verdict"] or "no verdict"
        print(f"{failure.id:24}{verdict:16}{right:6}{row['verdict_s']} s  {row['message'][:150]}", flush=True)
        write(rows, asked.out)
    last = {row["failure"]: row for row in rows}.values()
    return 0 if all(row["root_cause_right"] and not row["leftovers"] for row in last) else 1


def write(rows: list[dict[str, Json]], out: Path) -> None:
    whole = {
        "name": "diagnose",
        "date": datetime.now(UTC).date().isoformat(),
        "command": "python -m benchmarks.diagnose",
        "machine": {"cpus": os.cpu_count(), "gpu": "none"},
        "versions": {"specops": specops.__version__, "sglang": RELEASE},
        "rows": rows,
        "summary": summary(rows),
    }
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(whole, indent=1) + "\n")


def summary(rows: list[dict[str, Json]]) -> dict[str, Json]:
    last = {row["failure"]: row for row in rows}
    timed = [row["verdict_s"] for row in last.values() if row["verdict_s"] is not None]
    return {
        "runs": len(rows),
        "failures": len(last),
        "classes": len({row["failure_class"] for row in rows}),
        "root_cause_right": sum(row["root_cause_right"] for row in last.values()),
        "wrong_in_an_earlier_run": sorted(
            {
                row["failure"]
                for row in rows
                if not row["root_cause_right"] and row is not last[row["failure"]]
            }
        ),
        "verdict_s_max": max(timed, default=None),
        "within_2_s": sum(seconds <= 2 for seconds in timed),
        "timed": len(timed),
        "leftovers": sum(bool(row["leftovers"]) for row in rows),
    }


if __name__ == "__main__":
    raise SystemExit(main())
