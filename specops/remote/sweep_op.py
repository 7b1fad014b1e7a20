"""The sweep on a host: its load in a child of SGLang's environment, one event a level, kept on the host."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import measured, smoke_op, state
from .api import Api
from .context import OpFailed
from .load_child import Child
from .state import Instance
from .watch import ServerWatch, Verdict

Json = Any
Emit = Callable[[dict[str, Json]], None]
POLL_S = 0.2
LEVEL_S = 1800.0
"""Most for one measurement."""
PUT_BACK_S = 20.0
"""For a child that was told to end: the gate's threshold is put back, what runs is given up."""
DEATH_S = 3.0
"""How long a sweep that ended early waits for the server's own last words, and a dead one for the sweep's."""
WATCH_S = 1.0
"""Between two looks at whether the server lives: its cores are what is measured."""
CUT_SHORT = "a level was cut short"


def run(params: dict[str, Json], emit: Emit, gone: Callable[[], bool] = lambda: False) -> dict[str, Json]:
    """{levels: [level event], ended: `finished` or why not, cause, kept}. Finished levels outlive the server.

    `params`: an instance reference, `sweep` (the spec, with `python`, `cookie` and `about`, which is kept
    beside the levels), `agent_zip`, `secrets`. `gone`: nobody listens any more; it ends then.
    """
    instance = state.open_instance(params)
    spec = dict(params.get("sweep") or {})
    python = str(params.get("python") or (params.get("instance") or params).get("python") or "")
    if not python:
        raise OpFailed("usage", "the sweep has no `python` to run its load with")
    secrets = {str(k): str(v) for k, v in (params.get("secrets") or {}).items()}
    spec["budget_s"] = LEVEL_S * max(1, _measurements(spec))  # what came with it is the smoke test's
    cookie = spec.get("cookie")
    watch = smoke_op.find_server(instance.deploys / str(cookie or "none"), cookie, spec)
    sweep = _Sweep(instance=instance, spec=spec, emit=emit, watch=watch)
    child = Child("child-sweep", os.path.expanduser(python), Path(params["agent_zip"]), spec, secrets, None)
    try:
        return sweep.follow(child, gone)
    finally:
        child.end(PUT_BACK_S)
        sweep.close(secrets.get(str(spec.get("api_key_env") or "")))


def _measurements(spec: dict[str, Json]) -> int:
    points = len(spec.get("levels") or ()) + len(spec.get("rates") or ())
    return points * max(1, len(spec.get("arms") or ())) * int(spec.get("repeats") or 1)


class _Sweep:
    def __init__(
        self, *, instance: Instance, spec: dict[str, Json], emit: Emit, watch: ServerWatch | None
    ) -> None:
        self._instance = instance
        self._spec = spec
        self._emit = emit
        self._watch = watch
        self._threshold: int | None = None
        self._result: dict[str, Json] = {"levels": [], "ended": "interrupted"}
        self._started = time.time()
        self._path = measured.path_of(instance.sweeps, self._started)

    def follow(self, child: Child, gone: Callable[[], bool]) -> dict[str, Json]:
        try:
            self._result |= self._events(child, gone)
        except OpFailed as error:
            self._result["ended"] = error.message
            if error.code != "aborted":
                self._name_cause()
            if not self._result["levels"]:
                raise
        else:
            if self._result["ended"] != "finished":
                self._name_cause()
        return {**self._result, "kept": str(self._path)}

    def _events(self, child: Child, gone: Callable[[], bool]) -> dict[str, Json]:
        until: float | None = None
        look_at = 0.0
        while True:
            event = child.next(POLL_S)
            kind = event.get("event") if event else None
            now = time.monotonic()
            if gone():
                raise OpFailed("aborted", "interrupted: nobody listens to this sweep any more")
            if self._watch is not None and until is None and now >= look_at:
                look_at = now + WATCH_S
                until = now + DEATH_S if self._watch.poll() else None
            if event is None:
                if until is not None and now > until:
                    return {"ended": CUT_SHORT}  # its requests may hang on a server that lost a rank
                child.require_life()
            elif kind == "result":
                return dict(event["value"])
            elif kind == "threshold":
                self._threshold = int(event["was"])
            else:
                if kind == "level":
                    self._result["levels"].append(event)
                self._emit(event)

    def _name_cause(self) -> None:
        until = time.monotonic() + DEATH_S
        verdict: Verdict | None = None
        while self._watch is not None and verdict is None and time.monotonic() < until:
            verdict = self._watch.poll()
            time.sleep(POLL_S)
        if verdict is not None:
            self._result["cause"] = verdict.as_detail()
            self._result["ended"] = f"{self._result['ended']}; the server died: {verdict.message}"

    def close(self, key: str | None) -> None:
        """What was measured stays on the host; the threshold is what it was. Never raises OpFailed."""
        if self._threshold is not None and "cause" not in self._result:
            self._put_back(self._threshold, key)
        if not self._result["levels"]:
            return
        try:
            measured.keep(self._path, self._started, {"about": self._spec.get("about"), **self._result})
        except OSError as error:
            self._emit({"event": "note", "message": f"the sweep could not be kept on the host: {error}"})

    def _put_back(self, threshold: int, key: str | None) -> None:
        """Again, as the child may have died: telling the gate what it already does is no harm."""
        address, _, port = str(self._spec["url"]).rpartition("//")[2].partition(":")
        api = Api(address=address, port=int(port.split("/")[0] or 80), key=key)
        body = {"server_args": {"speculative_disable_batch_threshold": threshold}}
        status, _ = api.ask("/set_internal_state", body, timeout_s=10.0)
        if status != 200:
            self._emit(
                {
                    "event": "note",
                    "message": f"the gate's threshold could not be put back to {threshold}: the server "
                    f"answered {status or 'nothing'}; a restart brings it back",
                }
            )
