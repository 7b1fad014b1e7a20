"""Which gate a release gets, and the sizes that make the native one exact."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from specops.config.patch import load_patch
from specops.config.proof import Proof, keep_proof, patch_bytes
from specops.engine.proven import faster_than_native
from specops.errors import Refused
from specops.steps.gate import Gate, captured_sizes, choose_gate, native_config, parse_release, sizes_for

FASTER = ("p", 1.52)


def gate(wanted: str, release: str, topk: int = 1, patches: tuple[str, ...] = ()) -> str:
    return choose_gate(
        wanted, host="box", release=release, topk=topk, num_steps=3, threshold=5, gate_patches=patches
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
    with pytest.raises(Refused, match="switches itself off, silently, with topk 4") as refused:
        gate("auto", "0.5.18", topk=4)
    assert refused.value.next_command.startswith("specops patch rebase --host box")
    assert "--set draft.topk=1" in refused.value.next_command
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


def test_the_faster_one_of_two_gates_is_taken_where_somebody_measured() -> None:
    def chosen(wanted: str, release: str, topk: int = 1, faster: tuple[str, float] | None = FASTER) -> Gate:
        return choose_gate(
            wanted,
            host="box",
            release=release,
            topk=topk,
            num_steps=3,
            threshold=5,
            gate_patches=("p",),
            faster=faster,
        )

    assert chosen("auto", "0.5.15.post1").patch == "p"
    assert "at least 1.5 times as fast as its native gate" in chosen("auto", "0.5.15.post1").why
    assert chosen("native", "0.5.15.post1").kind == "native"
    assert chosen("auto", "0.5.15.post1", faster=None).kind == "native"
    assert "takes 1" in chosen("auto", "0.5.18", topk=4).why


def test_what_was_measured_holds_for_those_bytes_and_that_setting_alone(tmp_path: Path) -> None:
    shipped = Path(__file__).parents[3] / "patches" / "batch-gate"
    shipped_gate = load_patch(shutil.copytree(shipped, tmp_path / "batch-gate"))
    release = "0.5.15.post1"
    found = Proof(
        release=release, worker="v2", topk=1, level="gpu", bytes=patch_bytes(shipped_gate, release),
        date="2026-11-30", closed_steps=9, to_native=1.5,
    )  # fmt: skip
    keep_proof(shipped_gate.folder, found)
    measured = faster_than_native([shipped_gate], "0.5.15.post1", 1)
    assert measured is not None
    assert (measured[0], measured[1] > 1) == ("batch-gate", True)
    assert faster_than_native([shipped_gate], "0.5.15.post1", 4) is None
    assert faster_than_native([shipped_gate], "0.5.12.post1", 1) is None
    content = shipped_gate.releases["0.5.15.post1"]
    other = replace(content, files=content.files[1:])
    edited = replace(shipped_gate, releases={**shipped_gate.releases, "0.5.15.post1": other})
    assert faster_than_native([edited], "0.5.15.post1", 1) is None
