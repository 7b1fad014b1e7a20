"""Waiting for a server with two clocks, until it is ready or it is known why it will not be."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import loads, members, procs, shm
from .activity import Activity
from .api import Api, api_of
from .compared import find_mismatches
from .context import Context, OpFailed
from .launch import read_note
from .watch import ServerWatch, Verdict

Json = Any
POLL_S = 0.2
PROBE_PAUSE_S = 0.5
HEARTBEAT_S = 10.0
"""Between two words to whoever waits, where the log says nothing."""


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
    _activity: Activity = field(default_factory=Activity)
    _told_at: float = 0.0
    _why: str = "it does not listen yet"

    def run(self) -> dict[str, Json]:
        """Facts of the ready server.

        Raises `server_died`, `not_as_asked`, `no_progress`, `too_slow` or `aborted`.
        """
        self._began = time.monotonic()
        self._eta = self._make_eta()
        memory = shm.Watch(self.ctx.deploy_dir, str(self.note["cookie"]))
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
            memory.look(self._members())
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

    def _make_eta(self) -> loads.Eta:
        earlier = loads.find_load(self.ctx.deploy_dir.parent, self.note.get("model"), self.note.get("draft"))
        given = self.clocks.get("eta_s")
        weights = 0 if earlier or given else self._weigh()
        return loads.Eta(earlier=earlier, given_s=float(given) if given else None, weights=weights)

    def _weigh(self) -> int:
        pid = int(self.note["pid"])
        return loads.weigh(procs.read_argv(pid), procs.read_environ(pid))

    def _tell(self, watch: ServerWatch) -> None:
        """An event for each step forward, and now and then what goes on where the log is silent."""
        now = time.monotonic()
        elapsed, progress = now - self._began, watch.progress
        self._activity.look(self._members())
        for milestone in progress.seen:
            self._eta.mark(milestone, elapsed)
        progress.take_share(self._eta.share_read(self._activity.read))
        silent = not progress.changed()
        if silent and now - self._told_at < HEARTBEAT_S:
            return
        self._told_at = now
        eta, eta_of = self._eta.left(elapsed, self._activity.read)
        self.ctx.emit(
            {
                "event": "progress",
                "phase": self.phase,
                "milestone": progress.milestone,
                "fraction": round(progress.fraction, 3),
                "eta_s": None if eta is None else round(eta, 1),
                "eta_of": eta_of,
                "elapsed_s": round(elapsed, 1),
                "activity": self._activity.words() if silent else None,
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
        still_s = now - max(self._activity.moved_at, watch.moved_at)
        progress_s, cap_s = (
            float(self.clocks.get("progress_s") or 600),
            float(self.clocks.get("cap_s") or 3600),
        )
        if still_s > progress_s:
            raise self._too_late("no_progress", f"no progress for {still_s:.0f} s", watch)
        if now - self._began > cap_s:
            raise self._too_late("too_slow", f"not ready after {cap_s:.0f} s", watch)

    def _too_late(self, code: str, what: str, watch: ServerWatch) -> OpFailed:
        told = f"the server made {what}" if code == "no_progress" else f"the server is {what}"
        doing = self._activity.explain(self._members)
        message = f"{told} (last milestone: {watch.progress.milestone}; {self._why}); {doing}"
        cause = {"id": code.upper(), "message": message, "rank": None, "at": time.time()}
        self.ctx.record({"entry": "verdict", "cause": cause})
        return OpFailed(
            code, message, next_command="raise ready.progress_s or ready.cap_s if it is only slow"
        )

    def _ready_facts(self) -> dict[str, Json]:
        load_s = round(time.monotonic() - self._began, 1)
        shm.keep(self.ctx.deploy_dir, str(self.note["cookie"]), self._members())
        loads.keep_load(self.ctx.deploy_dir, self.note, load_s, self._eta.marks)
        keep = ("version", "model_path", "served_model_name", "max_running_requests", "speculative_algorithm")
        reported = {name: self._info[name] for name in keep if name in self._info}
        return {"load_s": load_s, "pid": self.note["pid"], "reported": reported}
