"""A wheel in a clean environment, outside any checkout, lists patches and plans a deploy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from specops.lab.lab import LabState
from tests.e2e.command import ROOT


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    call([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)])
    call([sys.executable, "-m", "venv", str(folder / "venv")])
    python = folder / "venv" / "bin" / "python"
    wheel = next(folder.glob("specops-*.whl"))
    call([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", str(wheel)])
    return python.with_name("specops")


def call(argv: list[str], cwd: Path | None = None) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, cwd=cwd, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_installed_wheel_brings_its_patches_playbooks_and_inventory(installed: Path, tmp_path: Path) -> None:
    listed = [
        json.loads(line)
        for line in call([str(installed), "patch", "list", "--json"], tmp_path).split("\n")
        if line
    ]
    assert "demo-dies-above-threshold" in json.dumps(listed)
    assert "batch-gate" in json.dumps(listed)


def test_installed_wheel_plans_a_deploy(installed: Path, tmp_path: Path, lab: LabState) -> None:
    words = [str(installed), "plan", "--host", "lab", "--threshold", "5", "--json"]
    plan = json.loads(call(words, tmp_path).splitlines()[0])["plan"]
    assert plan["summary"]["gate"] == "native"
    assert [step["phase"] for step in plan["steps"]][-1] == "smoke"
