"""The core of `make gate-proof`: batch-gate on real servers, each worker and kind of draft, a short soak."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import gate_labs
from benchmarks.gate_proof import Bench, Case, Load, Reference, cases_of, make_models, prove
from specops.lab import older
from specops.lab.processes import free_port
from tests.conftest import CACHE

LOAD = Load(prompts=24, victims=2, soak_s=10)
"""Prompts in whole waves: fewer than eight at once may never cross."""
CASES = [*cases_of("0.5.12.post1"), *(case for case in cases_of("0.5.18") if case.topk > 1)]
"""Of the later releases the drafts for which they have no gate of their own."""
REFERENCES: dict[str, Reference] = {}
"""What the untouched wheel answers; a release's other case is compared with the same."""


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_above_the_threshold_it_decodes_plainly_and_comes_back_whole(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECOPS_LAB_HOME", str(CACHE))
    home = older.default_home()
    lab = gate_labs.prepare(case.release, home)
    models = make_models(lab, home / "models")
    bench = Bench(lab=lab, case=case, models=models, work=tmp_path, port=free_port(), load=LOAD)
    row = prove(bench, REFERENCES)

    # By the counter around the forwards, which is not the gate's own.
    assert row["draft_forwards_while_closed"] == 0
    assert row["closed_steps"] > 300
    assert row["open_steps"] > 300
    assert row["crossings"] >= 10
    assert row["outputs_equal"]
    assert row["crossed_mid_request"] >= 16
    assert row["features_differ"] == []
    assert (row["failed"], row["leak_lines"], row["kv_after"]) == (0, 0, 0)
    assert row["live_control"]
    assert row["metrics_agree"]
    assert min(victim["ratio"] for victim in row["victims"]) >= 0.9
