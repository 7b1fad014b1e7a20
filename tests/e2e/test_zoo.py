"""The core of the zoo through whole deploys: each broken gate is caught by its check, and taken back."""

from __future__ import annotations

from pathlib import Path

import pytest

from specops.lab.lab import LabState
from tests.e2e.command import specops
from tests.e2e.server import is_speculating, owner_of_port
from tests.e2e.trees import digest_tree
from tests.zoo.mutants import CORE, read_mutants, write_patch

LATER = ("S4", "S5", "S7")
"""Checks that the lab's own playbook leaves out, because they take a minute on a CPU."""


@pytest.mark.parametrize("name", CORE)
def test_a_broken_gate_is_caught_by_its_check_and_rolled_back(
    name: str, lab: LabState, tmp_path: Path
) -> None:
    package = Path(lab.package)
    mutant = read_mutants(lab.release)[name]
    patch = write_patch(mutant, package, tmp_path)
    before, old_pid = digest_tree(package), owner_of_port(lab.port)

    ran = specops(
        "deploy", "--host", "lab", "--threshold", "5", "--patches", str(tmp_path), "--patch", patch,
        *(("--set", "smoke.checks=[S0,S1,S3,S2,S7,S4,S5,S6]") if mutant.first in LATER else ()),
        "--yes", "--json",
    )  # fmt: skip

    assert ran.code == 20, ran.err + ran.out[-3000:]
    verdicts = [(entry["id"], entry["verdict"]) for entry in ran.entries("check")]
    assert verdicts[-1] == (mutant.first, "fail"), verdicts
    assert all(verdict == "pass" for _, verdict in verdicts[:-1]), verdicts
    assert digest_tree(package) == before
    assert owner_of_port(lab.port) not in (None, old_pid)
    assert is_speculating(lab.port)
