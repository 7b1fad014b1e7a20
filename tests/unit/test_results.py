"""Every figure that the project shows is computed from raw rows that are there too."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.gpu.gate import FILES
from benchmarks.gpu.gate_record import find_proofs, gate_version
from benchmarks.summarize import RESULTS, summarize
from specops.config.patch import load_patch
from specops.config.proof import load_proofs
from specops.engine.proven import faster_than_native

KEYS = {"name", "date", "command", "machine", "versions", "rows", "summary"}


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_a_summary_says_what_its_rows_do(path: Path) -> None:
    whole = json.loads(path.read_text(encoding="utf-8"))
    assert whole.keys() >= KEYS
    assert whole["name"] == path.stem
    assert whole["summary"] == summarize(path.stem, whole["rows"])


def test_the_patch_is_proved_by_what_a_gpu_measured_of_its_code() -> None:
    """`auto` chooses by this figure: a proof that fell out of the file would be missed by nobody else."""
    kept, seen = load_proofs(FILES), 0
    for path in RESULTS.glob("gate_gpu_*.json"):
        release = path.stem.removeprefix("gate_gpu_")
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        for proof in find_proofs(rows, gate_version((FILES / "files").glob("*.py")), release):
            assert proof in [replace(each, date=proof.date) for each in kept], (release, proof.worker)
            seen += 1
    assert seen
    chosen = faster_than_native([load_patch(FILES)], "0.5.15.post1", 1)
    assert chosen is not None
    assert chosen[1] > 1.4, "closed against SGLang's own gate, at the level where it wins least"
