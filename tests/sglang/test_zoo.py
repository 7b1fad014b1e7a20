"""The zoo: every mutant fits its release. `make zoo` runs them on real servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from specops.config.patch import load_patch
from specops.config.shipped import shipped
from specops.lab.lab import LabState
from specops.steps.patch import build_changes
from tests.sglang.wheels import unpack
from tests.zoo.mutants import Mutant, mutate, read_mutants

OLDER = "0.5.12.post1"


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the older release that batch-gate changes or adds, as it leaves them."""
    patch = load_patch(shipped("patches") / "batch-gate")
    hooked = [change.path for change in patch.releases[OLDER].files if not change.added]
    package = unpack(OLDER, tmp_path_factory.mktemp("gated"), *hooked)

    def read(path: str) -> bytes | None:
        return (package / path).read_bytes() if path in hooked else None

    for change in build_changes(patch, OLDER, read):
        assert change.after is not None
        (package / change.path).write_bytes(change.after)
    return package


def require_fit(mutants: dict[str, Mutant], package: Path) -> None:
    for mutant in mutants.values():
        changed = mutate(mutant, package)
        assert changed, mutant.id
        for path, data in changed.items():
            assert data != (package / path).read_bytes()
            compile(data, path, "exec")


def test_each_mutant_of_the_table_fits_the_release_and_compiles(session_lab: LabState) -> None:
    mutants = read_mutants(session_lab.release)
    assert len(mutants) >= 20
    require_fit(mutants, Path(session_lab.package))


def test_each_mutant_of_the_patched_older_release_fits_and_compiles(gated: Path) -> None:
    mutants = read_mutants(OLDER)
    assert len(mutants) >= 12
    require_fit(mutants, gated)
