"""A real server with the native gate on this machine's CPU, and one smoke test of it, without a deploy."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specops.connect.payload import agent_zip
from specops.lab.environment import Environment, make_environment, make_models
from specops.lab.older import await_health, stop_group
from specops.lab.processes import start_detached
from specops.lab.server import server_argv, server_env
from specops.lab.state import folder_of
from specops.steps.gate import native_config

THRESHOLD = 5
STEPS = 3
DEADLINE_S = 420
"""More than any smoke test's budget: a child that hangs is an error of ours."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GatedServer:
    release: str
    python: Path
    port: int
    log: Path


def prepare(release: str) -> tuple[Environment, Path]:
    """The lab's environment and models for a release; made where they are missing."""
    home = folder_of("lab")
    environment = make_environment(home, release, None, lambda part: None)
    return environment, make_models(home, environment)


@contextmanager
def serve(release: str, port: int, work: Path, tree: Path | None = None) -> Iterator[GatedServer]:
    """Runs while the block does; `tree` goes before the install on the module path. Raises LabError."""
    environment, models = prepare(release)
    work.mkdir(parents=True, exist_ok=True)
    gate, log = work / "gate.json", work / "server.log"
    gate.write_bytes(native_config(STEPS, THRESHOLD))
    log.write_bytes(b"")
    argv = server_argv(environment.python, models / "target", models / "draft", port)
    argv += ["--speculative-adaptive", "--speculative-adaptive-config", str(gate)]
    env = server_env(work, environment.python)
    if tree is not None:
        env["PYTHONPATH"] = str(tree)
    process = start_detached(argv, env, log, work)
    try:
        await_health(process, port, log, 240)
        yield GatedServer(release=release, python=environment.python, port=port, log=log)
    finally:
        stop_group(process)


def smoke(server: GatedServer, **changes: Any) -> dict[str, Any]:
    """The result of ARCHITECTURE, SmokeSpec and its result; `changes` replace keys of the spec."""
    spec = {
        "url": f"http://127.0.0.1:{server.port}",
        "threshold": THRESHOLD,
        "gate": "native",
        "release": server.release,
        "num_steps": STEPS,
        "topk": 1,
        "log": str(server.log),
        "checks": None,
        "budget_s": 180,
        "token_gap_s": 20,
        "exact_outputs": True,
        **changes,
    }
    with tempfile.NamedTemporaryFile(suffix=".zip") as packed:
        packed.write(agent_zip())
        packed.flush()
        done = subprocess.run(
            [str(server.python), "-B", packed.name, "child-smoke"],
            input=json.dumps(spec),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    for line in reversed(done.stdout.splitlines()):
        event = json.loads(line)
        if event.get("event") == "result":
            return dict(event["value"])
    raise RuntimeError(f"the smoke test ended without a result: {done.stderr[-2000:]}")
