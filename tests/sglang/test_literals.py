"""What the agent looks for in logs is what SGLang writes, by the sources in its wheels."""

from __future__ import annotations

import json

import pytest

from benchmarks.literals import ELSEWHERE, RELEASES, RESULT, SIGNATURES, literals, read_sources
from specops.lab.lab import RELEASE
from specops.remote.diagnose import load_signatures


@pytest.fixture(scope="module")
def sources() -> str:
    return read_sources(RELEASE)


@pytest.fixture(scope="module")
def told() -> dict[tuple[str, str], list[str]]:
    """Literal -> the releases that have it, as `python -m benchmarks.literals` found."""
    return {
        (row["for"], row["literal"]): [release for release, there in row["in"].items() if there]
        for row in json.loads(RESULT.read_text())["rows"]
    }


def test_every_signature_says_whose_words_it_looks_for() -> None:
    assert {entry.id for entry in load_signatures()} == SIGNATURES.keys() | ELSEWHERE.keys()
    assert not SIGNATURES.keys() & ELSEWHERE.keys()


@pytest.mark.parametrize(("name", "words"), literals())
def test_sglang_still_writes_it(
    name: str, words: str, sources: str, told: dict[tuple[str, str], list[str]]
) -> None:
    """Or not in this release, which is known: what vanishes is found by the run over all wheels."""
    assert (words in sources) == (RELEASE in told[name, words])
    assert told[name, words], "no release has it: the signature matches nothing that SGLang writes"
    assert set(told[name, words]) <= set(RELEASES)
