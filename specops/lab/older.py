"""Real SGLang before 0.5.16 on the CPU: releases whose speculation has no CPU branch of its own.

The release's own wheel runs, unedited, in an environment of its own; `standin_v1` beside this file gives
it the compiled kernels in torch and lets Triton interpret the small ones.
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
from specops.errors import SpecopsError
from specops.steps.patch import build_changes

STANDIN = Path(__file__).parent / "standin_v1"
READY = "specops-lab.json"

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


OLDER = {
    "0.5.9": OlderRelease(version="0.5.9", transformers="4.57.1", v2_env={"SGLANG_ENABLE_SPEC_V2": "1"}),
    "0.5.12.post1": OlderRelease(version="0.5.12.post1", transformers="5.12.1", v2_env={}),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class OlderLab:
    """An environment with one release in it."""

    release: OlderRelease
    python: Path
    package: Path
    """The install's `sglang` folder."""


class LabError(SpecopsError):
    """The lab could not be made or its server did not come up; `host_state` is the end of the log."""


def default_home() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "specops" / "older-labs"


def prepare(release: str, home: Path) -> OlderLab:
    """Make the environment below `home` (about a minute, 2.6 GB), or use the one that is there."""
    if release not in OLDER:
        raise LabError(f"no older lab for SGLang {release}; there is one for {', '.join(OLDER)}")
    chosen = OLDER[release]
    folder = home / release
    python = folder / "bin" / "python"
    if not (folder / READY).is_file():
        shutil.rmtree(folder, ignore_errors=True)
        run([sys.executable, "-m", "venv", str(folder)])
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        run([*pip, *COMMON, f"transformers=={chosen.transformers}"])
        run([*pip, "--no-deps", *UNRESOLVED, f"sglang=={release}"])
        place = site_packages(python)
        shutil.copytree(STANDIN, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / READY).write_text(json.dumps({"sglang": release}), encoding="utf-8")
    return OlderLab(release=chosen, python=python, package=site_packages(python) / "sglang")


def run(argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise LabError(f"{' '.join(argv[:6])} ... ended with {done.returncode}", host_state=tail)


def site_packages(python: Path) -> Path:
    ask = [str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"]
    return Path(subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip())


def patched_copy(lab: OlderLab, patch: Patch, into: Path) -> Path:
    """Copy the package and patch the copy; `into` is then the folder to put on the module path."""
    package = into / "sglang"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(lab.package, package, ignore=shutil.ignore_patterns("__pycache__"))

    def read(path: str) -> bytes | None:
        file = package / path
        return file.read_bytes() if file.is_file() else None

    for change in build_changes(patch, lab.release.version, read):
        if change.after is None:
            (package / change.path).unlink()
        else:
            (package / change.path).write_bytes(change.after)
    return into


def server_environment(lab: OlderLab, *trees: Path, **extra: str) -> dict[str, str]:
    """Variables of a server; `trees` come before the install on the module path."""
    kept = {name: value for name, value in os.environ.items() if name in {"HOME", "PATH", "LANG", "TMPDIR"}}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(map(str, trees)),
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
