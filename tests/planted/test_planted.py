"""The planted bugs still fit the code they break. `make faults` runs the fault suite on each."""

from __future__ import annotations

import pytest

from .bugs import PROJECT, Bug, plant, read_bugs


def test_there_are_enough() -> None:
    assert len(read_bugs()) >= 10


@pytest.mark.parametrize("bug", read_bugs(), ids=lambda bug: bug.id)
def test_it_fits_and_compiles(bug: Bug) -> None:
    assert bug.what.endswith(".")
    for path in bug.diffs:
        before = (PROJECT / path).read_bytes()
        after = plant(bug, path, before)
        assert after != before
        compile(after, path, "exec")
