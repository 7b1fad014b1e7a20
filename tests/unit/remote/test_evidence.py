from __future__ import annotations

import io
import json
import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from specops.engine.evidence import describe_bundle
from specops.remote import evidence, evidence_log, gpus, launch, procs
from specops.remote.context import Context
from specops.ui.evidence import show_evidence

from .servers import await_true, deploying, free_port, launch_spec


def test_evidence_is_complete_bounded_and_without_secrets(ctx: Context) -> None:
    port = free_port()
    with deploying(ctx, port=port) as (on, _):
        on.vault.write_text(json.dumps({"secrets": {"hf": "hf_very_secret_value"}}))
        line = "[t TP0] Scheduler hit an exception: Traceback (most recent call last): hf_very_secret_value"
        launch.launch(on, {"launch": launch_spec(port, STANDIN_LOG=json.dumps([line]))})
        await_true(lambda: procs.read_listeners(port))
        filler = b"x" * 199 + b"\n"
        with open(ctx.deploy_dir / "server.log", "ab") as log:
            log.write(filler * 10_000 + b"ZeroDivisionError: division by zero\n" + filler * 10_000)
        (ctx.deploy_dir / "journal.jsonl").write_text('{"entry": "opened"}\n')
        cause = {
            "id": "ZERODIV",
            "message": "a division by zero",
            "detail": {"issues": ["#1"], "rank": "TP0"},
        }
        folder = evidence.collect(on, cause)
        index = json.loads((folder / "index.json").read_text())["files"]
        for name in (
            "cause.json",
            "processes.json",
            "ports.json",
            "server.log",
            "root.json",
            "ranks.json",
            "versions.json",
            "journal.jsonl",
            "gpus.json",
        ):
            assert index[name] == "ok"
        members = json.loads((folder / "processes.json").read_text())
        assert len(members) == 2
        kept = (folder / "server.log").read_bytes()
        assert len(kept) <= 1.5 * evidence_log.FILE_CAP
        assert b"Scheduler hit an exception" in kept
        assert b"hf_very_secret_value" not in kept
        assert (folder.stat().st_mode & 0o777) == 0o700
        with tarfile.open(fileobj=io.BytesIO(evidence.pack(ctx.deploy_dir))) as archive:
            names = archive.getnames()
        assert "d1/server.log" in names
        shown = render(evidence.pack(ctx.deploy_dir))
        for part in (
            "a division by zero",
            "issues/1",
            "TP0",
            "Scheduler hit an exception",
            "fired up",
            "standin",
        ):
            assert part in shown
        assert "hf_very_secret_value" not in shown


def test_the_window_around_a_long_traceback_reaches_its_exception(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    frames = "".join(f'  File "worker.py", line {n}, in step_{n}\n    step_{n + 1}()\n' for n in range(60))
    wrong = "RuntimeError: The size of tensor a (16) must match the size of tensor b (24)"
    log.write_text(
        "[t] Decode batch\n" * 40
        + f"[t TP1] Scheduler hit an exception: Traceback (most recent call last):\n{frames}{wrong}\n\n"
        + "[t] SIGQUIT received.\n" * 40
    )
    window = evidence_log.read_window(log)
    assert window["before"] == ["[t] Decode batch"] * evidence_log.LINES_BEFORE
    assert window["root"].endswith("Traceback (most recent call last):")
    assert window["after"].index(wrong) == 120
    assert len(window["after"]) == 121 + evidence_log.LINES_BEYOND


def render(bundle: bytes) -> str:
    said = io.StringIO()
    show_evidence(Console(file=said, width=200, highlight=False), describe_bundle("d1", bundle))
    return said.getvalue()


def test_one_part_that_fails_costs_no_other(ctx: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(ctx: Context) -> None:
        raise RuntimeError("no processes today")

    monkeypatch.setattr(evidence, "_processes", broken)
    folder = evidence.collect(ctx, {"id": "x"})
    index = json.loads((folder / "index.json").read_text())["files"]
    assert index["processes.json"] == "failed: RuntimeError: no processes today"
    assert index["cause.json"] == "ok"


def test_stacks_come_from_py_spy_and_no_part_is_begun_once_time_is_over(
    ctx: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = tmp_path / "py-spy"
    spy.write_text('#!/bin/sh\necho "$1 $2 $3: in forward (worker.py:7), key hush-hush"\n')
    spy.chmod(0o755)
    port = free_port()
    with deploying(ctx, port=port) as (on, _):
        on.instance["python"] = str(tmp_path / "python")
        on.vault.write_text(json.dumps({"secrets": {"key": "hush-hush"}}))
        pid = launch.launch(on, {"launch": launch_spec(port)})["pid"]
        await_true(lambda: procs.read_listeners(port))
        stacks = (evidence.collect(on, {"id": "x"}) / "stacks.txt").read_text()
        assert f"== {pid}\ndump --pid {pid}: in forward (worker.py:7)" in stacks
        assert "hush-hush" not in stacks
        monkeypatch.setattr(evidence, "BUDGET_S", -1.0)
        index = json.loads((evidence.collect(on, {"id": "x"}) / "index.json").read_text())["files"]
        assert set(index.values()) == {"left out: no time"}


def test_a_driver_that_hangs_costs_its_own_part_and_no_more(
    ctx: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, over = threading.Event(), threading.Event()

    def hang() -> Any:
        asked.set()
        over.wait(60)

    monkeypatch.setattr(evidence, "BUDGET_S", 1.0)
    monkeypatch.setattr(gpus, "read_gpus", hang)
    try:
        folder = evidence.collect(ctx, {"id": "x"})
        assert not over.is_set()
        index = json.loads((folder / "index.json").read_text())["files"]
    finally:
        over.set()
    assert asked.is_set()
    assert index["cause.json"] == "ok"
    assert index["gpus.json"] == "left out: it did not end in time"
    assert index["stacks.txt"] == "left out: no time"
