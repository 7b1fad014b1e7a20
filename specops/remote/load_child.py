"""The load generator as a child process, seen from the agent: events come out, the result comes last."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from .context import OpFailed

Json = Any
GRACE_S = 30.0
"""Beyond the budget, until a child that does not end is ended."""


class Child:
    """The load generator, in SGLang's environment: the spec on its stdin, secrets in its environment."""

    def __init__(
        self,
        name: str,
        python: str,
        agent_zip: Path,
        spec: dict[str, Json],
        secrets: dict[str, str],
        errors: Path | None,
    ) -> None:
        kept = {name: os.environ[name] for name in ("HOME", "LANG", "USER", "TMPDIR") if name in os.environ}
        path = f"{Path(python).parent}:/usr/local/bin:/usr/bin:/bin"
        env = {**kept, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1", **secrets}
        self.errors = errors
        try:
            with open(errors or os.devnull, "wb") as sink:
                self.process = subprocess.Popen(
                    [python, "-B", str(agent_zip), name],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=sink,
                    env=env,
                )
        except OSError as error:
            raise OpFailed("no_python", f"the load cannot start: {python}: {error}") from error
        self.limit = time.monotonic() + float(spec.get("budget_s") or 180) + GRACE_S
        self._events: queue.Queue[dict[str, Json]] = queue.Queue()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        if self.process.stdin:
            with contextlib.suppress(OSError):  # it ended already: `require_life` says so
                self.process.stdin.write(json.dumps(spec).encode())
                self.process.stdin.close()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                self._events.put(event)

    def next(self, wait_s: float) -> dict[str, Json] | None:
        try:
            return self._events.get(timeout=wait_s)
        except queue.Empty:
            return None

    @property
    def alive(self) -> bool:
        """Whether anything may still come from it."""
        return self.process.poll() is None or self._reading.is_alive() or not self._events.empty()

    def require_life(self) -> None:
        """Raises OpFailed when it ended without a result, or does not end."""
        if time.monotonic() > self.limit:
            raise OpFailed("smoke-failed", "the load generator did not end within its budget")
        if self.alive:
            return
        said = ""
        if self.errors and self.errors.exists():
            said = self.errors.read_text(errors="replace").strip()[-600:]
        code = self.process.returncode
        raise OpFailed("smoke-failed", f"the load generator ended with code {code} and no result: {said}")

    def end(self, patience_s: float = 0.0) -> None:
        """With patience it is told first, and may put in order what it changed."""
        if self.process.poll() is None and patience_s:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience_s)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reading.join(1.0)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None and not self._reading.is_alive():
                with contextlib.suppress(OSError):
                    pipe.close()
