"""A child program of the agent's zip on this machine: the load of `smoke --url`, without any host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from specops.connect.payload import agent_zip
from specops.errors import SpecopsError

if TYPE_CHECKING:
    from specops.connect.base import OnEvent

Json = Any
LAST_LINES = 5


def run_child(
    program: str, spec: Mapping[str, Json], on_event: OnEvent, secrets: Mapping[str, str] | None = None
) -> Json:
    """Run `<agent.zip> <program>` with `spec` on stdin; events are JSON lines on stdout, the last a result.

    `secrets` are variables of the child alone. Our own interpreter will do: what the load needs is a
    dependency of ours. Raises SpecopsError where the child ended without a result. Ctrl-C ends the child.
    """
    with tempfile.TemporaryDirectory(prefix="specops-") as folder:
        path = Path(folder) / "agent.zip"
        path.write_bytes(agent_zip())
        child = subprocess.Popen(
            [sys.executable, "-B", str(path), program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, **(secrets or {})},
        )
        with child:
            try:
                return _converse(child, program, json.dumps(dict(spec)), on_event)
            except BaseException:
                child.kill()
                raise


def _converse(child: subprocess.Popen[str], program: str, spec: str, on_event: OnEvent) -> Json:
    stdin, stdout, stderr = child.stdin, child.stdout, child.stderr
    if stdin is None or stdout is None or stderr is None:
        raise ValueError("a child without its three pipes")
    said: deque[str] = deque(maxlen=LAST_LINES)
    drain = threading.Thread(target=said.extend, args=(stderr,), daemon=True)
    drain.start()
    with _closing(stdin):
        stdin.write(spec)
    result: dict[str, Json] | None = None
    for line in stdout:
        event = _parse(line)
        if event is None:
            continue
        if event.get("event") == "result":
            result = event
        else:
            on_event(event)
    status = child.wait()
    drain.join(timeout=2)
    if result is None:
        why = " ".join(line.strip() for line in said) or "it printed nothing"
        raise SpecopsError(f"{program} ended without a result (exit status {status}): {why}")
    return result.get("value")


class _closing:
    """Closes the child's stdin, also where the child has closed its end first."""

    def __init__(self, pipe: IO[str]) -> None:
        self._pipe = pipe

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> bool:
        try:
            self._pipe.close()
        except BrokenPipeError:
            return True
        return isinstance(error[1], BrokenPipeError)


def _parse(line: str) -> dict[str, Json] | None:
    """None for a line that is no event: a library may print to stdout."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None
