"""One tensor-parallel gated deploy: prove it, measure its arms, kill a rank, roll back, leave nothing."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from benchmarks.gpu.levels import set_threshold, wave
from benchmarks.tp_box import (
    MARK,
    Box,
    end_everything,
    find_leftovers,
    find_rank,
    gets_token,
    look,
    processes,
    read_gate,
    write_configuration,
)
from benchmarks.tp_record import RESERVE_S, Record, Row, journal, milestones, phases, ranks_of
from specops.lab.older import await_health, stop_group
from specops.remote.launch import login_env
from specops.steps.launch import words

ROOT = Path(__file__).resolve().parents[1]
ALWAYS_OPEN = 1_000_000
WAVE_S = 60.0
"""More than a wave should take; the time is looked at before each."""
TAKE_BACK_S = 60.0
TOKEN_S = 20.0
CLOSED_S = 150.0
"""How long S3 may take on a slow machine until it has the gate closed."""


def call_specops(
    box: Box, asked: Sequence[str], limit_s: float, log: Path, on_event: Callable[[Row], None] | None = None
) -> list[Row]:
    """Run a command with --json, its events to `log` and `on_event`; at the limit it is left to itself."""
    command = [sys.executable, "-m", "specops", *asked, "--host", "box", "--json"]
    command += ["--inventory", str(box.work / "inventory.yaml")]
    events: list[Row] = []
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, MARK: box.mark},
        start_new_session=True,
    )
    timer = threading.Timer(limit_s, process.kill)
    timer.start()
    try:
        with log.open("w", encoding="utf-8") as out:
            for line in process.stdout or ():
                out.write(line)
                out.flush()
                if not line.startswith("{"):
                    continue
                events.append({**json.loads(line), "seen_at": time.time()})
                if on_event:
                    on_event(events[-1])
        process.wait()
    finally:
        timer.cancel()
    return events


def add_deploy(record: Record, name: str, events: Sequence[Row]) -> str:
    """The row of one deploy or rollback; how it ended."""
    ends = [event for event in events if event.get("event") in ("outcome", "error")]
    end = ends[-1] if ends else {"how": "no end within its limit"}
    how = str(end.get("how") or end.get("message"))
    steps = phases(events)
    checks = [event for event in events if event.get("event") == "check"]
    record.add(
        "deploy",
        name=name,
        how=how,
        cause=end.get("cause"),
        exit_code=end.get("exit_code"),
        serving=end.get("serving"),
        load_s=steps.get("await the new server"),
        steps=steps,
        milestones={phase: milestones(events, phase) for phase in ("ready", "restore")},
        checks=[{key: c.get(key) for key in ("id", "verdict", "summary", "seconds")} for c in checks],
        failures=end.get("failures") or end.get("detail"),
    )
    return how


def add_gate(record: Record, when: str) -> None:
    record.add("gate", when=when, **ranks_of(read_gate(record.box)))


def measure_arms(
    record: Record, arms: Mapping[str, int | None], levels: Sequence[int], tokens: int, keep_s: float = 0.0
) -> None:
    """Level by level, the arms of a level one after the other; as many as there is time for.

    An arm's value is its threshold, by live control of one server; None where there is no gate.
    """

    async def run() -> None:
        connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=WAVE_S * 2)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            await wave(session, record.box.url, levels[-1], 8)
            for size in levels:
                for arm, threshold in arms.items():
                    if record.remaining_s < keep_s + 15:
                        record.add("note", message=f"no time for C={size}, {arm} and what comes after")
                        return
                    await measure_wave(record, session, arm, threshold, size, tokens)

    try:
        asyncio.run(run())
    except (RuntimeError, aiohttp.ClientError) as problem:
        record.add("note", message=f"the arms ended early: {type(problem).__name__}: {problem}")


async def measure_wave(
    record: Record, session: aiohttp.ClientSession, arm: str, threshold: int | None, size: int, tokens: int
) -> None:
    """One row; what all ranks say of their gate is read right after the wave."""
    url = record.box.url
    if threshold is not None:
        await set_threshold(session, url, threshold)
    row = await wave(session, url, size, tokens)
    gate = ranks_of(read_gate(record.box)) if threshold is not None else {}
    record.add("level", arm=arm, threshold=threshold, **row, **gate)


@dataclass(kw_only=True)
class Killer:
    """Kills one rank once S3 has begun and the gate is closed; then watches for the server of before."""

    box: Box
    rank: int
    cookie: str = ""
    killed_at: float | None = None
    closed: bool = False
    served_at: float | None = None
    ended: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)

    def on_event(self, event: Row) -> None:
        entry = event.get("entry") or {}
        if entry.get("entry") == "opened":
            self.cookie = str(entry["plan_id"])
        elif event.get("event") == "check_started" and event.get("id") == "S3" and not self.threads:
            self._start(self._kill)
        elif entry.get("entry") == "settling" and self.killed_at:
            self._start(self._await_served)

    def _start(self, task: Callable[[], None]) -> None:
        thread = threading.Thread(target=task, daemon=True)
        self.threads.append(thread)
        thread.start()

    def _kill(self) -> None:
        until = time.monotonic() + CLOSED_S
        while not self.closed and time.monotonic() < until and not self.ended.is_set():
            self.closed = read_gate(self.box).get("state") == "closed"
        pid = find_rank(self.cookie, self.rank)
        if pid is not None:
            self.killed_at = time.time()
            os.kill(pid, signal.SIGKILL)

    def _await_served(self) -> None:
        while not self.ended.is_set():
            if gets_token(self.box, timeout_s=TOKEN_S):
                self.served_at = time.time()
                return
            self.ended.wait(0.25)

    def row(self, events: Sequence[Row]) -> Row:
        verdicts = journal(events, "verdict")
        first = verdicts[0] if verdicts else None
        after: Row = {"death_to_verdict_s": None, "death_to_served_s": None}
        if self.killed_at and first:
            after["death_to_verdict_s"] = round(float(first["at"]) - self.killed_at, 2)
        if self.killed_at and self.served_at:
            after["death_to_served_s"] = round(self.served_at - self.killed_at, 2)
        restored = [float(entry["at"]) for entry in journal(events, "undone")]
        if self.killed_at and restored:
            after["death_to_restored_s"] = round(max(restored) - self.killed_at, 2)
        cause = first["cause"] if first else None
        return {"rank": self.rank, "gate_closed": self.closed, "verdict": cause, **after}


def deploy(record: Record, name: str, more: Sequence[str], limit_s: float) -> str:
    log = record.path.parent / f"tp{record.box.tp}-{name}.jsonl"
    events = call_specops(record.box, ["deploy", "--yes", *more], record.left_s(limit_s), log)
    return add_deploy(record, name, events)


def deploy_and_kill(record: Record, limit_s: float) -> None:
    """A second deploy; the last rank of its server dies in S3."""
    box = record.box
    killer = Killer(box=box, rank=box.tp - 1)
    log = record.path.parent / f"tp{box.tp}-killed.jsonl"
    asked = ["deploy", "--yes", "--threshold", str(box.threshold + 1)]
    events = call_specops(box, asked, record.left_s(limit_s), log, killer.on_event)
    for thread in killer.threads:
        thread.join(timeout=TOKEN_S)  # the command may end before the answer that it waited for is seen here
    killer.ended.set()
    add_deploy(record, "killed", events)
    record.add("death", **killer.row(events))


def tell(record: Record, *, levels: Sequence[int], tokens: int, limit_s: float, kill: bool) -> None:
    """The whole run. Raises OutOfTime between phases; what then still runs is ended."""
    box = record.box
    before = look(box)
    whole = False
    try:
        how = deploy(record, "first", [], limit_s)
        if how == "rolled back":
            how = deploy(record, "first-again", ["--set", "smoke.checks=[S0, S3]"], limit_s)
        if how.startswith("deployed"):
            add_gate(record, "after the first deploy")
            if kill:
                deploy_and_kill(record, limit_s)
                add_gate(record, "of the server of before, started again")
            arms = {"gated": box.threshold, "always-on": ALWAYS_OPEN, "always-closed": 0}
            measure_arms(record, arms, levels, tokens, keep_s=TAKE_BACK_S)
            take_back(record, TAKE_BACK_S)
            whole = True
    finally:
        if not whole and processes(MARK, box.mark):
            record.add("note", message="the run was cut: its server is taken back now")
            call_specops(box, ["rollback", "--yes"], RESERVE_S / 2, record.path.parent / "cut.jsonl")
        record.add("leftovers", leftovers=find_leftovers(box, before))
        end_everything(box)


def take_back(record: Record, limit_s: float) -> None:
    """`specops rollback`: nothing was serving before the first deploy."""
    box = record.box
    log = record.path.parent / f"tp{box.tp}-rollback.jsonl"
    events = call_specops(box, ["rollback", "--yes"], record.left_s(limit_s), log)
    add_deploy(record, "rollback", events)


def run(record: Record, *, levels: Sequence[int], tokens: int, limit_s: float, kill: bool = True) -> bool:
    """True if the run came to its end; whatever stops it is a row. Nothing of it is left running."""
    write_configuration(record.box)
    try:
        tell(record, levels=levels, tokens=tokens, limit_s=limit_s, kill=kill)
    except Exception as problem:
        record.add("note", message=f"{type(problem).__name__}: {problem}")
        return False
    return True


def measure_plain(record: Record, levels: Sequence[int], tokens: int) -> None:
    """The arm without speculation: the pristine install, started by hand. Raises OutOfTime, LabError."""
    box = record.box
    book = json.loads((box.work / "playbook.yaml").read_text())
    args = {
        "model-path": book["model"]["path"], "served-model-name": "tp", "host": "127.0.0.1", "port": box.port,
        "tp-size": box.tp, "mem-fraction-static": box.server.get("mem_fraction_static"),
        "max-running-requests": box.server.get("max_running_requests"), "enable-metrics": True,
        **box.server["args"],
    }  # fmt: skip
    limit_s = record.left_s(200)
    log = box.work / "no-spec.log"
    process = subprocess.Popen(
        [str(box.python), "-m", "sglang.launch_server", *words(args)],
        stdin=subprocess.DEVNULL,
        stdout=log.open("wb"),
        stderr=subprocess.STDOUT,
        env={**login_env(), **box.env, MARK: box.mark},
        cwd=box.work,
        start_new_session=True,
    )
    try:
        await_health(process, box.port, log, limit_s)
        measure_arms(record, {"no-spec": None}, levels, tokens)
    finally:
        stop_group(process)


def parse_levels(text: str) -> list[int]:
    return [int(word) for word in text.split(",") if word]


def common_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--levels", type=parse_levels, default=[1, 2, 5, 6, 10, 30, 64])
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--port", type=int, default=31570)
    parser.add_argument("--work", type=Path, default=Path("/tmp/specops-tp"))  # noqa: S108
