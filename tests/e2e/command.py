"""Runs the command line as its users do: another process, an exit code, JSON lines and text."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 540


@dataclass(frozen=True, kw_only=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What `--json` printed."""
        return [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line.get("event") == kind]

    @property
    def journal(self) -> list[dict[str, Any]]:
        return [line["entry"] for line in self.events("journal")]

    def entries(self, kind: str) -> list[dict[str, Any]]:
        return [entry for entry in self.journal if entry["entry"] == kind]


def start(*words: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "specops", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "120", **(env or {})},
        start_new_session=True,
    )


def interrupt_at(kind: str, *words: str, env: dict[str, str] | None = None, deadline_s: float = 60.0) -> Ran:
    """The command with `--json`, and Ctrl-C at its first event of this kind."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a background run: children inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return act_at(
        kind, lambda process: process.send_signal(signal.SIGINT), *words, env=env, deadline_s=deadline_s
    )


def act_at(
    kind: str,
    act: Callable[[subprocess.Popen[str]], None],
    *words: str,
    env: dict[str, str] | None = None,
    deadline_s: float = DEADLINE_S,
) -> Ran:
    """The command with `--json`; something is done at its first event of this kind."""
    process = start(*words, "--json", env=env)
    lines: list[str] = []
    for line in process.stdout or ():
        lines.append(line)
        if json.loads(line).get("event") == kind:
            break
    act(process)
    try:
        out, err = process.communicate(timeout=deadline_s)
    finally:
        process.kill()
    return Ran(code=process.returncode, out="".join(lines) + out, err=err)


def specops(*words: str, env: dict[str, str] | None = None, deadline_s: float = DEADLINE_S) -> Ran:
    process = start(*words, env=env)
    try:
        out, err = process.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(
            f"specops {' '.join(words)} did not end in {deadline_s} s\n{out}\n{err}"
        ) from None
    return Ran(code=process.returncode, out=out, err=err)
