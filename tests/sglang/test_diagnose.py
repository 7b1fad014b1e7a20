"""Failures induced in a real server get their right name; benchmarks.diagnose has the whole table."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.diagnose import RELEASE, Bench
from benchmarks.failures import FAILURES
from benchmarks.gated_server import prepare
from specops.lab.lab import LabState
from specops.lab.processes import free_port

pytestmark = pytest.mark.lab


@pytest.mark.parametrize("name", ["rank-killed-loading", "draft-of-another-target"])
def test_the_cause_is_named_and_nothing_is_left(session_lab: LabState, tmp_path: Path, name: str) -> None:
    environment, models = prepare(RELEASE)
    bench = Bench(environment=environment, models=models, nccl_port=free_port())
    (failure,) = (each for each in FAILURES if each.id == name)
    row = bench.run(failure, tmp_path)
    assert row["root_cause_right"], row
    assert row["leftovers"] == []
