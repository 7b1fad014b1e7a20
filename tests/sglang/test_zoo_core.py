"""The core of the zoo on real servers: each broken gate is caught, by the check that is meant to catch it."""

from __future__ import annotations

from itertools import takewhile

import pytest

from benchmarks.zoo import is_right, try_mutant
from specops.lab import processes
from specops.lab.lab import LabState
from tests.zoo.mutants import CORE, read_mutants

pytestmark = pytest.mark.lab
BEFORE = ("S0", "S1", "S3")
"""What a deploy asks first; `make zoo` asks everything of everybody."""


@pytest.mark.parametrize("name", CORE)
def test_a_broken_gate_is_caught_by_its_check(name: str, session_lab: LabState) -> None:
    mutant = read_mutants(session_lab.release)[name]
    checks = [*takewhile(lambda check: check != mutant.first, BEFORE), mutant.first]

    row = try_mutant(mutant, processes.free_port(), checks)

    assert is_right(row), row
