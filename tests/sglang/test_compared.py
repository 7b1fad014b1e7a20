"""The list of compared arguments against the wheels: names and rewrites are in their releases' sources."""

from __future__ import annotations

import re

import pytest

from benchmarks.literals import RELEASES
from specops.lab.wheels import open_wheel
from specops.remote.compared import read_table
from specops.remote.flags import parse_release


def read_arguments(release: str) -> str:
    """Where a release declares its arguments and sets them after parsing."""
    with open_wheel(release) as wheel:
        names = [
            name
            for name in wheel.namelist()
            if name.startswith(("sglang/srt/server_args", "sglang/srt/arg_groups/"))
            or name == "sglang/srt/entrypoints/engine.py"
        ]
        return "\n".join(wheel.read(name).decode() for name in names if name.endswith(".py"))


@pytest.mark.parametrize("release", RELEASES)
def test_what_is_compared_is_there(release: str) -> None:
    source, here, table = read_arguments(release), parse_release(release), read_table()
    for entry in table["compared"]:
        declared = re.search(rf"^    {entry['name']}\s*:", source, re.M) is not None
        assert declared == (parse_release(entry["since"]) <= here), entry["name"]
    for rule in table["rewrites"]:
        if parse_release(rule["since"]) <= here:
            assert any(words in source for words in rule["words"]), rule
