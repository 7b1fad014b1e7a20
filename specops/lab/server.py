"""The lab's SGLang server, started by hand as an operator would: always-on EAGLE-3, no gate."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import requests

from specops.lab.environment import LabError
from specops.lab.state import COOKIE

READY_S = 300.0
QUIET = {
    "SGLANG_USE_CPU_ENGINE": "1",
    # Else the first speculative request compiles for a quarter of a minute.
    "TORCHDYNAMO_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}


def server_argv(python: Path, model: Path, draft: Path, port: int) -> list[str]:
    """tp 1, 3 draft steps, topk 1. float32: no batch size changes what greedy decoding says."""
    return [
        str(python),
        "-m",
        "sglang.launch_server",
        *("--model-path", str(model), "--served-model-name", "tiny", "--host", "127.0.0.1"),
        *("--port", str(port), "--device", "cpu", "--dtype", "float32"),
        *("--attention-backend", "intel_amx", "--prefill-attention-backend", "intel_amx"),
        *("--decode-attention-backend", "intel_amx", "--speculative-draft-attention-backend", "intel_amx"),
        *("--disable-cuda-graph", "--disable-overlap-schedule", "--sleep-on-idle", "--enable-metrics"),
        *("--mem-fraction-static", "0.3", "--max-total-tokens", "20000", "--max-running-requests", "16"),
        *("--decode-log-interval", "10", "--speculative-algorithm", "EAGLE3"),
        *("--speculative-draft-model-path", str(draft), "--speculative-num-steps", "3"),
        *("--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4"),
    ]


def server_env(folder: Path, python: Path, quiet: Mapping[str, str] = QUIET) -> dict[str, str]:
    """Built from data: nothing of the caller's environment but who and where the user is."""
    kept = {key: os.environ[key] for key in ("HOME", "USER", "LOGNAME", "LANG") if key in os.environ}
    path = f"{python.parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {**kept, "PATH": path, COOKIE: str(folder), **quiet}


def await_token(port: int, process: subprocess.Popen[bytes] | None, log: Path) -> None:
    """Until one real token was answered. Raises LabError with the end of the log."""
    until = time.monotonic() + READY_S
    while time.monotonic() < until:
        if answers(port) and (process is None or process.poll() is None):
            return
        if process is not None and process.poll() is not None:
            raise LabError(
                f"the lab's server ended with code {process.returncode}: {_tail(log)}",
                host_state="nothing serves in the lab",
                next_command="specops lab logs",
            )
        time.sleep(0.3)
    raise LabError(
        f"the lab's server gave no token within {READY_S:.0f} s: {_tail(log)}",
        host_state="it may still come up",
        next_command="specops lab logs",
    )


def answers(port: int) -> bool:
    body = {"text": "a", "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
    try:
        reply = requests.post(f"http://127.0.0.1:{port}/generate", json=body, timeout=30)
    except requests.RequestException:
        return False
    return reply.status_code == 200


def _tail(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        return "(no log)"
    return " / ".join(line.strip() for line in lines[-3:]) or "(empty log)"
