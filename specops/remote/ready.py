"""Waiting for a server with two clocks, until it is ready or it is known why it will not be."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import members, procs, state
from .api import Api, api_of, find_mismatches
from .context import Context, OpFailed
from .launch import SERVER_FILE, read_note
from .watch import ServerWatch, Verdict

Json = Any
POLL_S = 0.2
PROBE_PAUSE_S = 0.5
READ_STEP = 8 * 1024 * 1024
"""Bytes read from disk that count as progress: a slow disk writes no log lines, but it is not stuck."""


def await_server(ctx: Context, args: dict[str, Json]) -> dict[str, Json]:
    cookie, port = str(args["cookie"]), int(args["port"])
    note = read_note(ctx, cookie)
    if not note:
        raise OpFailed("server_died", "nothing that this deploy started is on this host (was it rebooted?)")
    facts = Wait(
        ctx=ctx,
        note=note,
        port=port,
        clocks=args.get("ready") or {},
        expect=args.get("expect") or {},
        gate_expected=args.get("gate") == "native",
    ).run()
    return {**facts, "serving": {"line": f"the new server, pid {note['pid']}, on port {port}", **_ref(note)}}


def _ref(note: dict[str, Json]) -> dict[str, Json]:
    return {"pid": note["pid"], "start_ticks": note["start_ticks"], "cookie": note["cookie"]}


class Probe:
    """One round of requests in a thread, so that a server that hangs cannot hide a death from the watch."""

    def __init__(self, api: Api, expect: dict[str, Json]) -> None:
        self._api, self._expect = api, expect
        self.why_not = "not asked yet"
        self.mismatches: list[str] = []
        self.info: dict[str, Json] = {}
        self._thread = threading.Thread(target=self._ask, name="probe", daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        if not self._api.is_healthy(timeout_s=2.0):
            self.why_not = "/health does not answer 200 yet"
            return
        why_not = self._api.get_token()
        info = self._api.get_info(timeout_s=10.0) if not why_not else {}
        if not why_not and not info:
            why_not = "the server does not report its arguments yet"
        self.info = info
        self.mismatches = find_mismatches(self._expect, info) if info else []
        self.why_not = why_not

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()


@dataclass
class Wait:
    """One wait for one launched server (`note`: what was written down at its launch)."""

    ctx: Context
    note: dict[str, Json]
    port: int
    clocks: dict[str, Json]
    expect: dict[str, Json]
    gate_expected: bool = False
    phase: str = "ready"
    _probe: Probe | None = None
    _probe_after: float = 0.0
    _read: int = 0
    _moved: float = field(default_factory=time.monotonic)
    _why: str = "it does not listen yet"

    def run(self) -> dict[str, Json]:
        """Facts of the ready server.

        Raises `server_died`, `not_as_asked`, `no_progress`, `too_slow` or `aborted`.
        """
        self._began = time.monotonic()
        self._eta_s = self.clocks.get("eta_s") or earlier_load_s(self.ctx, self.note.get("model"))
        watch = ServerWatch(
            log_path=Path(self.note["log"]),
            pid=int(self.note["pid"]),
            start_ticks=int(self.note["start_ticks"]),
            cookie=str(self.note["cookie"]),
            gate_expected=self.gate_expected,
        )
        while True:
            verdict = watch.poll()
            if verdict is not None:
                raise self._died(verdict)
            reason = self.ctx.aborted()
            if reason:
                raise OpFailed("aborted", f"aborted while the server was loading: {reason}")
            self._tell(watch)
            if self._is_ready():
                return self._ready_facts()
            self._check_clocks(watch)
            time.sleep(POLL_S)

    def _died(self, verdict: Verdict) -> OpFailed:
        self.ctx.record({"entry": "verdict", "cause": verdict.as_cause()})
        return OpFailed(
            "server_died",
            f"the server failed: {verdict.message}",
            detail=verdict.as_detail(),
            next_command=verdict.action,
        )

    def _tell(self, watch: ServerWatch) -> None:
        if not watch.progress.changed():
            return
        elapsed = time.monotonic() - self._began
        eta = None if self._eta_s is None else max(0.0, round(float(self._eta_s) - elapsed, 1))
        self.ctx.emit(
            {
                "event": "progress",
                "phase": self.phase,
                "milestone": watch.progress.milestone,
                "fraction": round(watch.progress.fraction, 3),
                "eta_s": eta,
                "elapsed_s": round(elapsed, 1),
            }
        )

    def _members(self) -> set[int]:
        launcher = int(self.note["pid"])
        return {launcher} | procs.children_of(launcher)

    def _is_ready(self) -> bool:
        """The listener is ours, one real token came back, and the report agrees with what was asked."""
        if self._probe is None:
            if time.monotonic() >= self._probe_after:
                self._start_probe()
            return False
        if not self._probe.done:
            return False
        probe, self._probe = self._probe, None
        self._probe_after = time.monotonic() + PROBE_PAUSE_S
        self._why = probe.why_not
        if probe.mismatches:
            raise OpFailed(
                "not_as_asked",
                "the server runs with other arguments than it was asked for: " + "; ".join(probe.mismatches),
                detail={"mismatches": probe.mismatches},
                next_command="specops logs shows what SGLang rewrote, and why",
            )
        self._info = probe.info
        return not probe.why_not

    def _start_probe(self) -> None:
        self._probe_after = time.monotonic() + PROBE_PAUSE_S
        listeners = procs.read_listeners(self.port)
        if not listeners:
            return
        scan = {pid: p for pid in self._members() if (p := procs.read_process(pid))}
        if not procs.socket_holders(scan, (listener.inode for listener in listeners)):
            self._why = (
                f"port {self.port} is held by {members.describe_holder(procs.scan_processes(), self.port)}"
            )
            return
        self._probe = Probe(api_of(self.port, procs.read_argv(int(self.note["pid"]))), self.expect)

    def _check_clocks(self, watch: ServerWatch) -> None:
        now = time.monotonic()
        read = sum(_bytes_read(pid) for pid in self._members())
        if read >= self._read + READ_STEP:
            self._read, self._moved = read, now
        still_s = now - max(self._moved, watch.moved_at)
        progress_s, cap_s = (
            float(self.clocks.get("progress_s") or 600),
            float(self.clocks.get("cap_s") or 3600),
        )
        if still_s > progress_s:
            raise self._too_late("no_progress", f"no progress for {still_s:.0f} s", watch)
        if now - self._began > cap_s:
            raise self._too_late("too_slow", f"not ready after {cap_s:.0f} s", watch)

    def _too_late(self, code: str, what: str, watch: ServerWatch) -> OpFailed:
        message = (
            f"the server made {what}" if code == "no_progress" else f"the server is {what}"
        ) + f" (last milestone: {watch.progress.milestone}; {self._why}); {self._explain()}"
        cause = {"id": code.upper(), "message": message, "rank": None, "at": time.time()}
        self.ctx.record({"entry": "verdict", "cause": cause})
        return OpFailed(
            code, message, next_command="raise ready.progress_s or ready.cap_s if it is only slow"
        )

    def _explain(self) -> str:
        """Hung or busy, by what its processes do in half a second."""
        pids = self._members()
        before = {pid: procs.cpu_ticks(pid) for pid in pids}
        time.sleep(0.5)
        spent = {pid: procs.cpu_ticks(pid) - ticks for pid, ticks in before.items()}
        stopped = [pid for pid in pids if (p := procs.read_process(pid)) and p.state == "T"]
        if stopped:
            return f"process {stopped[0]} is stopped (SIGSTOP)"
        busiest = max(spent, key=lambda pid: spent[pid])
        if spent[busiest] > 10:
            return f"process {busiest} is busy on the CPU without a word in the log"
        return "its processes neither compute nor read: they wait for something"

    def _ready_facts(self) -> dict[str, Json]:
        load_s = round(time.monotonic() - self._began, 1)
        note = self.ctx.deploy_dir / SERVER_FILE
        if (state.read_json(note) or {}).get("cookie") == self.note["cookie"]:
            state.write_private(note, json.dumps({**self.note, "load_s": load_s}, indent=1).encode())
        keep = ("version", "model_path", "served_model_name", "max_running_requests", "speculative_algorithm")
        reported = {name: self._info[name] for name in keep if name in self._info}
        return {"load_s": load_s, "pid": self.note["pid"], "reported": reported}


def _bytes_read(pid: int) -> int:
    """From disk, as /proc/<pid>/io counts it."""
    try:
        with open(f"/proc/{pid}/io") as file:
            for line in file:
                if line.startswith("read_bytes:"):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0


def earlier_load_s(ctx: Context, model: Json) -> float | None:
    """How long this model took to load the last time on this instance."""
    found: list[tuple[float, float]] = []
    for path in ctx.deploy_dir.parent.glob(f"*/{SERVER_FILE}"):
        note = state.read_json(path) or {}
        if note.get("load_s") and note.get("model") == model:
            found.append((float(note.get("at") or 0), float(note["load_s"])))
    return max(found)[1] if found else None
