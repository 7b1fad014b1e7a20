"""A server on a GPU from an unpacked install, up to its first real token, and stopped again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

READY_S = 300
TERM_S, KILL_S = 15.0, 10.0
COMMON = (
    "--host", "127.0.0.1", "--attention-backend", "triton", "--sampling-backend", "pytorch",
    "--grammar-backend", "none", "--decode-log-interval", "20", "--enable-metrics",
    "--stream-interval", "16",
)  # fmt: skip
NATIVE_GATE = (0, 5, 14)
"""From here on SGLang has a gate of its own, and another name for the graphs of a prefill."""


def common(release: str, running: int) -> list[str]:
    """What every arm of a comparison has in common; `running` requests are admitted and captured."""
    number = tuple(int(part) for part in release.split(".post")[0].split("."))
    prefill = "--disable-prefill-cuda-graph" if number >= NATIVE_GATE else "--disable-piecewise-cuda-graph"
    sizes = ("--max-running-requests", str(running), "--cuda-graph-max-bs", str(running))
    return [*COMMON, prefill, *sizes]


class Failed(Exception):
    """What a stage could not do, with the end of the log."""


@dataclass(frozen=True, kw_only=True)
class Server:
    process: subprocess.Popen[bytes]
    url: str
    log: Path
    ready_s: float


@contextmanager
def serve(
    name: str,
    site: Path,
    tree: Path | None,
    arguments: Sequence[str],
    env: Mapping[str, str],
    port: int,
    out: Path,
) -> Iterator[Server]:
    """`tree` goes before the install on the module path. Raises Failed if no token comes, or if something
    serves on the port already: it would answer in this server's place."""
    began = time.monotonic()
    process, log = start(name, site, tree, arguments, env, port, out)
    try:
        await_token(process, f"http://127.0.0.1:{port}", log, began)
        yield Server(
            process=process, url=f"http://127.0.0.1:{port}", log=log, ready_s=time.monotonic() - began
        )
    finally:
        stop(process)


def start(
    name: str,
    site: Path,
    tree: Path | None,
    arguments: Sequence[str],
    env: Mapping[str, str],
    port: int,
    out: Path,
) -> tuple[subprocess.Popen[bytes], Path]:
    """The launcher, in a group of its own, and its log."""
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            raise Failed(f"something serves on port {port} already")
    log = out / f"{name}.log"
    dsl = site / "c" / "nvidia_cutlass_dsl"
    path = [str(p) for p in (tree, site, dsl / "python_packages", dsl / "dsl_packages") if p is not None]
    with open(log, "wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "sglang.launch_server", "--port", str(port), *arguments],
            env={**os.environ, **env, "PYTHONPATH": ":".join(path), "HF_HUB_OFFLINE": "1"},
            stdout=sink,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    return process, log


def await_token(process: subprocess.Popen[bytes], url: str, log: Path, began: float) -> None:
    while time.monotonic() - began < READY_S:
        try:
            with urllib.request.urlopen(f"{url}/health_generate", timeout=5):  # noqa: S310
                return
        except (urllib.error.URLError, OSError):
            if process.poll() is not None:
                break
            time.sleep(0.5)
    tail = log.read_text(errors="replace").splitlines()[-15:]
    raise Failed("did not come up:\n" + "\n".join(line[:300] for line in tail))


def stop(process: subprocess.Popen[bytes]) -> None:
    for number, wait_s in ((signal.SIGTERM, TERM_S), (signal.SIGKILL, KILL_S)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        until = time.monotonic() + wait_s
        while time.monotonic() < until and _group_lives(process):
            time.sleep(0.2)
    process.wait()


def _group_lives(process: subprocess.Popen[bytes]) -> bool:
    process.poll()
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True
