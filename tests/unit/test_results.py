"""Every figure that the project shows is computed from raw rows that are there too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.summarize import RESULTS, summarize

KEYS = {"name", "date", "command", "machine", "versions", "rows", "summary"}


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_a_summary_says_what_its_rows_do(path: Path) -> None:
    whole = json.loads(path.read_text(encoding="utf-8"))
    assert whole.keys() >= KEYS
    assert whole["name"] == path.stem
    assert whole["summary"] == summarize(path.stem, whole["rows"])
