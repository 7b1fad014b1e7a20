"""The zoo: every mutant fits its release; on real servers, five are caught by the right check first."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.zoo import try_mutant
from specops.lab import processes
from specops.lab.lab import LabState
from tests.zoo.mutants import CORE, mutate, read_mutants

MUTANTS = read_mutants()
FIRST_PORT = 31340


def test_each_mutant_of_the_table_fits_the_release_and_compiles(session_lab: LabState) -> None:
    assert len(MUTANTS) >= 20
    package = Path(session_lab.package)
    for mutant in MUTANTS.values():
        assert mutant.release == session_lab.release
        changed = mutate(mutant, package)
        assert changed, mutant.id
        for path, data in changed.items():
            assert data != (package / path).read_bytes()
            compile(data, path, "exec")


@pytest.mark.lab
@pytest.mark.parametrize("name", CORE)
def test_the_expected_check_is_the_first_to_fail(name: str, session_lab: LabState) -> None:
    row = try_mutant(MUTANTS[name], processes.free_port(FIRST_PORT))
    assert row["first_failing_check"] == MUTANTS[name].first, row
    assert row["first_verdict"] == "fail", row
    assert row["verdict"] == "fail", row
