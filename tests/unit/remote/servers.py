"""Starting stand-in servers for tests, and ending them whatever happens."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specops.remote import procs
from specops.remote.context import Context

STANDIN = str(Path(__file__).with_name("standin.py"))
_ports = itertools.cycle(range(31210, 31299))


def free_port() -> int:
    for port in _ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable")


def argv_of(port: int, *more: str) -> list[str]:
    return [sys.executable, "-S", STANDIN, "sglang.launch_server", "--port", str(port), *more]


def await_true(what: Callable[[], Any], seconds: float = 20.0) -> Any:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        value = what()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError("not true in time")


@dataclass(frozen=True)
class Stand:
    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def start_ticks(self) -> int:
        process = procs.read_process(self.pid)
        assert process is not None
        return process.start_ticks


@contextmanager
def serving(folder: Path, *more: str, wait: bool = True, **env: str) -> Iterator[Stand]:
    """A stand-in as an operator would start it; everything that carries its mark is killed at the end."""
    port = free_port()
    mark = f"{folder}-{port}"
    log = folder / f"stand-{port}.log"
    with open(log, "ab") as out:
        process = subprocess.Popen(
            argv_of(port, *more),
            env={"PATH": os.environ["PATH"], "STANDIN_MARK": mark, **env},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        if wait:
            await_true(lambda: procs.read_listeners(port))
            await_true(lambda: len(procs.children_of(process.pid)))
        yield Stand(process=process, port=port, log=log)
    finally:
        sweep(mark)
        process.wait()


def sweep(mark: str) -> None:
    for pid in procs.scan_processes():
        if (procs.read_environ(pid) or {}).get("STANDIN_MARK") == mark:
            os.kill(pid, 9)


@contextmanager
def deploying(ctx: Context, root: Path | None = None, **instance: Any) -> Iterator[tuple[Context, list[Any]]]:
    """The context with a recording journal and event list; servers that it launched are killed at the end."""
    seen: list[Any] = []
    fresh = replace(
        ctx,
        record=seen.append,
        emit=seen.append,
        instance={"root": str(root or ""), "python": sys.executable, **instance},
    )
    try:
        yield fresh, seen
    finally:
        for pid in procs.scan_processes():
            cookie = (procs.read_environ(pid) or {}).get(procs.COOKIE)
            if cookie in (ctx.deploy_id, f"{ctx.deploy_id}-old"):
                os.kill(pid, 9)
        for child in procs.CHILDREN.values():
            child.wait(10)
        procs.CHILDREN.clear()


def launch_spec(port: int, *more: str, cookie: str = "d1", **env: str) -> dict[str, Any]:
    return {
        "argv": argv_of(port, *more),
        "cwd": "{deploy_dir}",
        "env": {"base": "login", "set": env, "unset": [], "path": []},
        "port": port,
        "cookie": cookie,
        "log": "{deploy_dir}/server.log",
    }
