"""The batch-gate patch on real servers: the short form of `make gate-proof`, and a control that must fail."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gate_proof
from benchmarks.gate_load import client, disturb_victim
from benchmarks.gate_proof import Bench
from specops.lab import older

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

RELEASE = "0.5.12.post1"
PORT = 31580


def bench_for(worker: str, work: Path) -> Bench:
    case = next(case for case in gate_proof.CASES if (case.release, case.worker) == (RELEASE, worker))
    lab = older.prepare(RELEASE, older.default_home())
    models = gate_proof.make_models(lab, older.default_home() / "models")
    return Bench(lab=lab, case=case, models=models, work=work, port=PORT)


@pytest.mark.parametrize("worker", ["v1", "v2"])
def test_the_gate_holds_what_it_promises(worker: str, tmp_path: Path) -> None:
    row = gate_proof.prove(bench_for(worker, tmp_path), soak_s=40)
    assert gate_proof.problems(row) == []


def test_without_its_catch_up_acceptance_collapses_and_the_proof_says_so(tmp_path: Path) -> None:
    bench = bench_for("v1", tmp_path)

    async def victim() -> dict[str, Any]:
        async with client(bench.port) as server:
            return await disturb_victim(server, 1, bench.case.steps + 1)

    with bench.serve("stale", gated=True, LAB_STALE_DRAFT="1"):
        seen = asyncio.run(victim())
    assert seen["same_text"]
    assert seen["ratio"] < 0.8
    assert seen["follow_up"] < 0.8 * seen["alone"]
