"""State folders of other versions: an older one is finished, a newer one is left alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specops.remote import journal, state

from . import state_of
from .box import Box, present
from .cuts import PROJECT, room
from .judge import Before
from .served import ServedBox

Json = Any


@pytest.fixture
def folder() -> Iterator[Path]:
    with room() as made:
        yield made


def specops(box: Box, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command on a machine that has never heard of the box: an empty home, and an inventory."""
    site = home / "venv/lib/python3/site-packages"
    site.mkdir(parents=True, exist_ok=True)
    (home / "venv/bin").mkdir(exist_ok=True)
    python = home / "venv/bin/python"
    if not python.exists():
        python.symlink_to(sys.executable)
        (site / "sglang").symlink_to(box.root)
    instance = {"name": "one", "port": box.port, "python": str(python)}
    host = {"address": "local", "state": box.ref["state"], "instances": [instance]}
    inventory = home / "inventory.yaml"
    inventory.write_text(json.dumps({"hosts": {"box": host}}))
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT), "COLUMNS": "300"}
    argv = [sys.executable, "-m", "specops", *words, "--host", "box", "--inventory", str(inventory)]
    return subprocess.run(argv, env=env, cwd=home, capture_output=True, text=True, timeout=300, check=False)


def test_recover_ends_what_an_older_version_left_from_another_machine(folder: Path) -> None:
    """Of format 1, cut down with its new server loading; the host was rebooted since."""
    box = ServedBox(folder / "box")
    try:
        before = Before("deploy", box)
        deploy = state_of.put(box)
        for name, data in present(box.after).items():
            (box.root / name).parent.mkdir(parents=True, exist_ok=True)
            (box.root / name).write_bytes(data)
        box.old_dies()
        (folder / "home").mkdir()
        refused = specops(box, folder / "home", "deploy", "--yes")
        assert refused.returncode == 14, refused
        assert f"deploy {deploy} never ended" in refused.stderr
        done = specops(box, folder / "home", "recover")
        assert done.returncode == 20, done
        assert "the host was rebooted during await" in done.stderr
        assert "the old server, started again" in done.stderr
        assert before.ended(server_gone=False) == ("old", "")
    finally:
        box.end()


@pytest.mark.parametrize("where", ["plan", "journal"])
def test_what_a_newer_version_left_is_not_touched(folder: Path, where: str) -> None:
    box = Box(folder / "box")
    deploy = box.deploy_dir("20270101-000000-ffff")
    deploy.mkdir(parents=True)
    newer = journal.FORMAT + 1
    plan = {"format": newer if where == "plan" else 1, "by": {"version": "9.1"}}
    state.write_private(deploy / "plan.json", json.dumps(plan).encode())
    if where == "journal":
        entry = {"seq": 1, "at": 0.0, "entry": "opened", "format": newer, "steps": 1}
        state.write_private(deploy / "journal.jsonl", json.dumps(entry).encode() + b"\n")
    for verb in ("run", "recover", "history", "status", "facts", "clean", "follow"):
        answer = box.run(box.plan()) if verb == "run" else box.ask(verb)
        assert answer.error["code"] == "newer_state", verb
    assert deploy.exists()
    assert box.is_old()
    (folder / "home").mkdir()
    said = specops(box, folder / "home", "recover")
    assert said.returncode == 13
    for words in (deploy.name, "version 9.1", f"format {newer}", "nothing was changed", "pip install"):
        assert words in said.stderr


def test_every_deploy_says_its_format(folder: Path) -> None:
    box = Box(folder / "box")
    assert box.run().value["how"] == "deployed"
    opened = journal.replay_deploy(box.deploy_dir()).opened
    assert opened
    assert opened["format"] == journal.FORMAT
