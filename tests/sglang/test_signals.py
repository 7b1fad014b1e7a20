"""The table of signals says of each release what is in its wheel, and nothing that is not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from specops.lab.wheels import open_wheel
from specops.remote.smoke.signals import exists, read_table

RELEASES = ("0.5.5", "0.5.9", "0.5.12.post1", "0.5.15.post1", "0.5.18", "0.5.20", "0.5.23")
Entry = dict[str, Any]


def literal_of(entry: Entry) -> str:
    quoted = entry["kind"] in ("page", "info", "answer")
    return str(entry.get("literal") or (json.dumps(entry["name"]) if quoted else entry["name"]))


@pytest.fixture(scope="module", params=RELEASES)
def wheel(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """(release, all of its server's sources)."""
    with open_wheel(request.param) as files:
        names = [name for name in files.namelist() if name.startswith("sglang/srt/") and name.endswith(".py")]
        yield request.param, "\n".join(files.read(name).decode(errors="replace") for name in names)


def test_the_table_is_that_of_the_wheel(wheel: tuple[str, str]) -> None:
    release, sources = wheel
    claimed = {entry["name"]: exists(entry, release) for entry in read_table()["signals"]}
    found = {entry["name"]: literal_of(entry) in sources for entry in read_table()["signals"]}
    assert found == claimed


def test_each_signal_says_what_it_means_and_a_role_is_taken_by_one_at_a_time() -> None:
    for entry in read_table()["signals"]:
        assert entry["means"]
        assert entry["kind"] in ("page", "info", "answer", "metric", "log", "environment")
