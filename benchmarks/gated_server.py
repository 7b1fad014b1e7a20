"""A real gated server on this machine's CPU, and one smoke test of it, without a deploy.

`serve` runs releases since 0.5.16 with the native gate, `serve_patched` any with the batch-gate patch.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import gate_labs
from specops.config.patch import load_patch
from specops.config.shipped import shipped
from specops.connect.payload import agent_zip
from specops.lab import older
from specops.lab.environment import Environment, make_environment, make_models
from specops.lab.older import await_health, stop_group
from specops.lab.processes import start_detached
from specops.lab.server import server_argv, server_env
from specops.lab.state import folder_of
from specops.steps.gate import native_config
from specops.steps.patch import build_changes

PAIR = Path(older.__file__).with_name("pair.py")
THRESHOLD = 5
STEPS = 3
GRACE_S = 240
"""Beyond a smoke test's budget: a child that hangs is an error of ours."""
OLDER_LOG_INTERVAL = 4
OLDER_BUDGET_S = 1800
"""The older labs interpret their kernels, a tree's above all: the checks wait for steps, not for seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GatedServer:
    release: str
    python: Path
    port: int
    log: Path
    gate: str = "native"
    num_steps: int = STEPS
    topk: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Worker:
    """How a release with the batch-gate patch drafts."""

    num_steps: int
    topk: int
    draft_tokens: int
    overlap: bool


V1 = Worker(num_steps=5, topk=4, draft_tokens=16, overlap=False)
"""EAGLEWorker, which drafts trees."""
V2 = Worker(num_steps=3, topk=1, draft_tokens=4, overlap=True)
V2_TREES = Worker(num_steps=5, topk=4, draft_tokens=16, overlap=True)
"""EAGLEWorkerV2 with trees, from 0.5.13 on."""


def prepare(release: str) -> tuple[Environment, Path]:
    """The lab's environment and models for a release; made where they are missing."""
    home = folder_of("lab")
    environment = make_environment(home, release, None, lambda part: None)
    return environment, make_models(home, environment)


@contextmanager
def serve(
    release: str,
    port: int,
    work: Path,
    tree: Path | None = None,
    env: Mapping[str, str] | None = None,
    more: Sequence[str] = (),
) -> Iterator[GatedServer]:
    """Runs while the block does; `tree` goes before the install on the module path, `more` are arguments.

    Raises LabError.
    """
    environment, models = prepare(release)
    work.mkdir(parents=True, exist_ok=True)
    gate, log = work / "gate.json", work / "server.log"
    gate.write_bytes(native_config(STEPS, THRESHOLD))
    log.write_bytes(b"")
    argv = server_argv(environment.python, models / "target", models / "draft", port)
    argv += ["--speculative-adaptive", "--speculative-adaptive-config", str(gate), *more]
    whole = {**server_env(work, environment.python), **(env or {})}
    if tree is not None:
        whole["PYTHONPATH"] = str(tree)
    process = start_detached(argv, whole, log, work)
    try:
        await_health(process, port, log, 240)
        yield GatedServer(release=release, python=environment.python, port=port, log=log)
    finally:
        stop_group(process)


def patched_files(release: str) -> dict[str, bytes]:
    """What batch-gate changes or adds in a release's package: path -> bytes."""
    package = gate_labs.prepare(release, older.default_home()).package

    def read(path: str) -> bytes | None:
        return (package / path).read_bytes() if (package / path).is_file() else None

    changes = build_changes(load_patch(shipped("patches") / "batch-gate"), release, read)
    return {change.path: change.after for change in changes if change.after is not None}


@contextmanager
def serve_patched(
    release: str, port: int, work: Path, tree: Path, worker: Worker, more: Sequence[str] = ()
) -> Iterator[GatedServer]:
    """As `serve`, with the batch gate; `tree` holds the patched package. Raises LabError."""
    lab = gate_labs.prepare(release, older.default_home())
    work.mkdir(parents=True, exist_ok=True)
    models = make_older_models(lab)
    arguments = gate_labs.arguments(lab, models, port)
    arguments += older.draft_arguments(
        models, steps=worker.num_steps, topk=worker.topk, draft_tokens=worker.draft_tokens
    )
    arguments += ["--speculative-disable-batch-threshold", str(THRESHOLD)]
    # The checks last for so many log intervals: short ones suit a slow server.
    arguments += ["--decode-log-interval", str(OLDER_LOG_INTERVAL), *more]
    extra = dict(lab.release.v2_env) if worker.overlap else {}
    arguments += [] if worker.overlap else ["--disable-overlap-schedule"]
    log = work / "server.log"
    env = gate_labs.environment(lab, tree, **extra)
    with older.serve(lab, arguments, port, log, env, deadline_s=600):
        yield GatedServer(
            release=release, python=lab.python, port=port, log=log,
            gate="batch-gate", num_steps=worker.num_steps, topk=worker.topk,
        )  # fmt: skip


def make_older_models(lab: older.OlderLab) -> Path:
    """The lab's pair, made by the lab's Python where it is missing."""
    folder = older.default_home() / "models"
    if not (folder / "draft" / "model.safetensors").is_file():
        subprocess.run([str(lab.python), str(PAIR), str(folder)], check=True, capture_output=True)
    return folder


def smoke(server: GatedServer, **changes: Any) -> dict[str, Any]:
    """The result of ARCHITECTURE, SmokeSpec and its result; `changes` replace keys of the spec."""
    spec: dict[str, Any] = {
        "url": f"http://127.0.0.1:{server.port}",
        "threshold": THRESHOLD,
        "gate": server.gate,
        "release": server.release,
        "num_steps": server.num_steps,
        "topk": server.topk,
        "log": str(server.log),
        "checks": None,
        "budget_s": 180 if server.gate == "native" else OLDER_BUDGET_S,
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
            timeout=spec["budget_s"] + GRACE_S,
            check=False,
        )
    for line in reversed(done.stdout.splitlines()):
        event = json.loads(line)
        if event.get("event") == "result":
            return dict(event["value"])
    raise RuntimeError(f"the smoke test ended without a result: {done.stderr[-2000:]}")
