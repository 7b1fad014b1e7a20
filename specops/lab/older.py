"""Real SGLang before 0.5.16 on the CPU: releases whose speculation has no CPU branch of its own.

The release's own wheel runs, unedited, from a folder of its own; `standin_v1` beside this file gives it
the compiled kernels in torch and lets Triton interpret the small ones. Releases that go with the same
transformers share the environment that holds everything else.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from specops.config.patch import Patch
from specops.lab.wheels import READY, run, unpack_release
from specops.lab.wheels import LabError as LabError
from specops.lab.wheels import default_home as default_home
from specops.steps.patch import build_changes

STANDIN = Path(__file__).parent / "standin_v1"

COMMON = (
    "torch==2.13.0", "fastapi==0.120.4", "starlette==0.49.3", "uvicorn", "uvloop", "aiohttp", "requests",
    "pyzmq", "msgspec", "orjson", "psutil",
    "pydantic", "python-multipart", "prometheus-client", "pillow",
    "setproctitle", "pybase64",
    "ipython", "dill", "openai==2.6.1", "openai-harmony==0.0.4", "partial_json_parser",
    "apache-tvm-ffi==0.1.11", "sentencepiece", "loguru", "gguf", "einops", "jsonschema", "soundfile", "scipy",
    "interegular", "tiktoken",
)  # fmt: skip
UNRESOLVED = ("triton==3.9.0", "xgrammar==0.2.1", "compressed-tensors")
"""Installed without their own requirements, which ask for CUDA builds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OlderRelease:
    version: str
    transformers: str
    v2_env: Mapping[str, str]
    """Variables that choose EAGLEWorkerV2 where it is not the default."""


_ASK_FOR_V2 = {"SGLANG_ENABLE_SPEC_V2": "1"}
_BY_ENVIRONMENT: tuple[tuple[str, dict[str, str], str], ...] = (
    ("4.57.1", _ASK_FOR_V2, "0.5.5 0.5.5.post1 0.5.5.post2 0.5.5.post3 0.5.6 0.5.6.post1 0.5.6.post2"),
    ("4.57.1", _ASK_FOR_V2, "0.5.7 0.5.8 0.5.8.post1 0.5.9"),
    ("5.12.1", _ASK_FOR_V2, "0.5.10 0.5.10.post1"),
    ("5.12.1", {}, "0.5.11 0.5.12 0.5.12.post1 0.5.13 0.5.13.post1 0.5.14 0.5.15 0.5.15.post1"),
)
OLDER = {
    version: OlderRelease(version=version, transformers=transformers, v2_env=v2_env)
    for transformers, v2_env, versions in _BY_ENVIRONMENT
    for version in versions.split()
}


@dataclass(frozen=True, kw_only=True, slots=True)
class OlderLab:
    """An environment and one release beside it."""

    release: OlderRelease
    python: Path
    package: Path
    """The release's `sglang` folder; the folder that holds it has to be on the module path."""


def prepare(release: str, home: Path) -> OlderLab:
    """Make what is missing below `home` (an environment: about a minute, 2.5 GB; a release: seconds)."""
    if release not in OLDER:
        raise LabError(f"no older lab for SGLang {release}; there is one for {', '.join(OLDER)}")
    chosen = OLDER[release]
    folder = home / f"transformers-{chosen.transformers}"
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    if not (folder / READY).is_file():
        shutil.rmtree(folder, ignore_errors=True)
        run([sys.executable, "-m", "venv", str(folder)])
        run([*pip, *COMMON, f"transformers=={chosen.transformers}"])
        run([*pip, "--no-deps", *UNRESOLVED])
        (folder / READY).write_text(json.dumps({"transformers": chosen.transformers}), encoding="utf-8")
    return OlderLab(release=chosen, python=python, package=unpack_release(release, home) / "sglang")


def find_prepared(release: str, home: Path) -> OlderLab | None:
    """The release's lab where its environment is there already; nothing is installed."""
    chosen = OLDER.get(release)
    if chosen is None or not (home / f"transformers-{chosen.transformers}" / READY).is_file():
        return None
    return prepare(release, home)


def patched_copy(lab: OlderLab, patch: Patch, into: Path) -> Path:
    """Copy the package and patch the copy; `into` is then the folder to put on the module path.

    Files that the patch leaves alone are hard links where the file system allows it: nobody writes to them.
    """
    package = into / "sglang"
    shutil.rmtree(package, ignore_errors=True)
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(lab.package, package, ignore=skip, copy_function=link_or_copy)

    def read(path: str) -> bytes | None:
        file = package / path
        return file.read_bytes() if file.is_file() else None

    for change in build_changes(patch, lab.release.version, read):
        (package / change.path).unlink(missing_ok=True)
        if change.after is not None:
            (package / change.path).write_bytes(change.after)
    return into


def link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def server_environment(lab: OlderLab, *trees: Path, **extra: str) -> dict[str, str]:
    """Variables of a server; `trees` come before the release on the module path."""
    kept = {name: value for name, value in os.environ.items() if name in {"HOME", "PATH", "LANG", "TMPDIR"}}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(map(str, (*trees, lab.package.parent, STANDIN))),
        "PYTHONDONTWRITEBYTECODE": "1",
        "SGLANG_USE_CPU_ENGINE": "1",
        "TRITON_INTERPRET": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        **extra,
    }


def server_arguments(models: Path, port: int) -> list[str]:
    """What every server of an older lab needs; no speculation yet. float32, so that ties do not flip.

    `models` holds what `pair.py` makes.
    """
    return [
        "--model-path", str(models / "target"), "--served-model-name", "tiny", "--host", "127.0.0.1",
        "--port", str(port), "--device", "cpu", "--attention-backend", "triton", "--dtype", "float32",
        "--triton-attention-num-kv-splits", "1", "--disable-cuda-graph", "--mem-fraction-static", "0.3",
        "--max-total-tokens", "20000", "--max-running-requests", "16", "--enable-metrics", "--sleep-on-idle",
        "--skip-server-warmup", "--decode-log-interval", "10",
    ]  # fmt: skip


def draft_arguments(models: Path, *, steps: int, topk: int, draft_tokens: int) -> list[str]:
    return [
        "--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", str(models / "draft"),
        "--speculative-num-steps", str(steps), "--speculative-eagle-topk", str(topk),
        "--speculative-num-draft-tokens", str(draft_tokens),
    ]  # fmt: skip


@contextmanager
def serve(
    lab: OlderLab, arguments: list[str], port: int, log: Path, env: Mapping[str, str], deadline_s: float = 240
) -> Iterator[int]:
    """A server in its own session while the block runs; its process group's id. Raises LabError."""
    argv = [str(lab.python), "-m", "sglang.launch_server", *arguments]
    with log.open("wb") as out:
        server = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=dict(env), cwd=log.parent,
            start_new_session=True,
        )  # fmt: skip
    try:
        await_health(server, port, log, deadline_s)
        yield server.pid
    finally:
        stop_group(server)


def await_health(server: subprocess.Popen[bytes], port: int, log: Path, deadline_s: float) -> None:
    end = time.monotonic() + deadline_s
    while server.poll() is None and time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.3)
    ended = server.poll() is not None
    how = f"ended with {server.returncode}" if ended else f"was not ready in {deadline_s:.0f} s"
    tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:])
    raise LabError(f"the lab's server on port {port} {how}", host_state=tail)


def stop_group(server: subprocess.Popen[bytes]) -> None:
    """Stop the whole session that was started, first politely."""
    for sign, patience_s in ((signal.SIGTERM, 8.0), (signal.SIGKILL, 5.0)):
        if not signal_group(server, sign):
            break
        end = time.monotonic() + patience_s
        while time.monotonic() < end and signal_group(server, 0):
            time.sleep(0.2)
    server.wait()


def signal_group(server: subprocess.Popen[bytes], sign: int) -> bool:
    """False once nothing of the group is left."""
    server.poll()
    try:
        os.killpg(server.pid, sign)
    except ProcessLookupError:
        return False
    return True
