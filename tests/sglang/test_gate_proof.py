"""The core of `make gate-proof`: batch-gate on real servers of 0.5.12.post1, both workers, a short soak."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gate_proof import Bench, Case, Load, Reference, cases_of, make_models, prove
from specops.lab import older
from specops.lab.processes import free_port

RELEASE, SOAK_S = "0.5.12.post1", 20
REFERENCES: dict[str, Reference] = {}
"""What the untouched wheel answers; the second worker is compared with the same."""


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("case", cases_of(RELEASE), ids=lambda case: case.worker)
def test_above_the_threshold_it_decodes_plainly_and_comes_back_whole(case: Case, tmp_path: Path) -> None:
    home = older.default_home()
    lab = older.prepare(RELEASE, home)
    models, load = make_models(lab, home / "models"), Load(soak_s=SOAK_S)
    bench = Bench(lab=lab, case=case, models=models, work=tmp_path, port=free_port(), load=load)
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
