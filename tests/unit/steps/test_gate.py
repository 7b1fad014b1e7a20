"""Which gate a release gets, and the sizes that make the native one exact."""

from __future__ import annotations

import json

import pytest

from specops.errors import Refused
from specops.steps.gate import captured_sizes, choose_gate, native_config, parse_release, sizes_for


def gate(wanted: str, release: str, topk: int = 1, patches: tuple[str, ...] = ()) -> str:
    return choose_gate(
        wanted, release=release, topk=topk, num_steps=3, threshold=5, gate_patches=patches
    ).kind


def test_native_from_0_5_14_on_and_with_topk_1_alone() -> None:
    assert gate("auto", "0.5.14") == "native"
    assert gate("auto", "0.5.18+cpu") == "native"
    assert gate("auto", "0.5.12.post1", patches=("batch-gate",)) == "batch-gate"
    assert gate("auto", "0.5.18", topk=4, patches=("batch-gate",)) == "batch-gate"
    assert gate("batch-gate", "0.5.18", patches=("batch-gate",)) == "batch-gate"
    for wanted, release, topk in (
        ("auto", "0.5.13.post1", 1),
        ("native", "0.5.18", 4),
        ("native", "0.5.12", 1),
    ):
        with pytest.raises(Refused, match=release):
            gate(wanted, release, topk)
    with pytest.raises(Refused, match="switches itself off, silently, with topk 4"):
        gate("auto", "0.5.18", topk=4)
    assert parse_release("0.5.13.post1") < parse_release("0.5.14.dev3+gabc") < parse_release("0.5.14")
    assert parse_release("0.5.13rc1") < parse_release("0.5.13")
    with pytest.raises(Refused, match="no release"):
        parse_release("main")


def test_the_file_closes_at_t_plus_1() -> None:
    tiers = json.loads(native_config(3, 5))
    assert tiers == {"1": {"candidate_steps": [3]}, "6": {"candidate_steps": [0]}}


def test_t_joins_the_captured_sizes_and_the_others_stay() -> None:
    assert captured_sizes(16) == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16]
    assert sizes_for(5, 16, None) is None, "5 is captured by default: nothing to pass"
    assert sizes_for(9, 14, None) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14]
    assert sizes_for(5, 64, [1, 2, 4, 8]) == [1, 2, 4, 5, 8]
