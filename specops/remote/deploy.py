"""One deploy's folder on the host, as the process that acts on it sees it: journal, events, abort."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import journal, procs, state
from .context import Context
from .journal import Journal
from .redact import VaultScrub
from .state import Instance

Json = Any
NEVER_SCRUBBED = ("entry", "undo", "seq", "at")
"""An undo is data that must come back unchanged; plans hold no secrets."""


class Deploy:
    """Made anew by each process that acts on the deploy, after its fork."""

    def __init__(self, instance: Instance, deploy_id: str, agent_zip: Path) -> None:
        self.instance = instance
        self.id = deploy_id
        self.dir = instance.deploy(deploy_id)
        self.agent_zip = agent_zip
        self._journal = Journal(self.dir)
        self._events = self.dir / "events.jsonl"
        self._mutex = threading.Lock()
        self._event_seq = _count_lines(self._events)
        self._scrub = VaultScrub(self.dir / "vault.json")

    def plan(self) -> dict[str, Json]:
        plan = state.read_json(self.dir / "plan.json")
        return plan if isinstance(plan, dict) else {}

    def record(self, entry: dict[str, Json]) -> None:
        """Durable when it returns; then mirrored as an event. OSError where the disk does not take it."""
        clean = {k: v if k in NEVER_SCRUBBED else self._scrub(v) for k, v in entry.items()}
        self._emit_clean({"event": "journal", "entry": self._journal.append(clean)})

    def last_event(self) -> int:
        """Seq of the last event so far."""
        return self._event_seq

    def emit(self, event: dict[str, Json]) -> None:
        self._emit_clean(self._scrub(event))

    def _emit_clean(self, event: dict[str, Json]) -> None:
        with self._mutex, contextlib.suppress(OSError, TypeError, ValueError):
            line = json.dumps({"seq": self._event_seq + 1, "at": time.time(), **event}, ensure_ascii=True)
            fd = os.open(self._events, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                size = os.fstat(fd).st_size
                # A writer that died left half a line: end it, so that it spoils no other.
                torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
                os.write(fd, (b"\n" if torn else b"") + line.encode() + b"\n")
            finally:
                os.close(fd)
            self._event_seq += 1

    def context(self, aborted: Callable[[], str]) -> Context:
        vault = state.read_json(self.dir / "vault.json") or {}
        return Context(
            deploy_id=self.id,
            deploy_dir=self.dir,
            store_dir=self.instance.store,
            agent_zip=self.agent_zip,
            instance=dict(self.plan().get("instance") or {"port": self.instance.port}),
            emit=self.emit,
            record=self.record,
            aborted=aborted,
            secrets={str(k): str(v) for k, v in (vault.get("secrets") or {}).items()},
        )

    def abort_reason(self) -> str:
        """Non-empty once somebody asked for the end of this deploy; the file is durable, a signal is not."""
        path = self.dir / "abort.json"
        if not path.exists():
            return ""
        asked = state.read_json(path) or {}
        return str(asked.get("reason") or "aborted")

    def drop_late_abort(self) -> None:
        """Once the deploy has closed: somebody may have asked for its end between its last look and that."""
        if journal.replay_deploy(self.dir).closed:
            with contextlib.suppress(OSError):
                (self.dir / "abort.json").unlink()

    def drop_transients(self, *, vault: bool) -> None:
        """What nobody needs once the deploy is about to close. Never raises."""
        shutil.rmtree(self.dir / "blobs", ignore_errors=True)
        for name in ("abort.json", "vault.json") if vault else ("abort.json",):
            with contextlib.suppress(OSError):
                (self.dir / name).unlink()
        for folder in (self.dir, self.instance.store, self.instance.agents):
            sweep_temps(folder)


def sweep_temps(folder: Path) -> None:
    """Remove what writers that are gone left half written (`.<name>.<pid>`)."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            pid = name.rpartition(".")[2]
            if not (name.startswith(".") and pid.isdigit()):
                continue
            writer = procs.read_process(int(pid))
            if writer is None or not writer.living:  # a zombie writes no more
                (folder / name).unlink(missing_ok=True)


def _count_lines(path: Path) -> int:
    try:
        return path.read_bytes().count(b"\n")
    except OSError:
        return 0
