"""The zoo: every mutant fits its release. `make zoo` runs them on real servers."""

from __future__ import annotations

from pathlib import Path

from specops.lab.lab import LabState
from tests.zoo.mutants import mutate, read_mutants

MUTANTS = read_mutants("0.5.18")


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
