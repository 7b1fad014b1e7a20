"""Proofs hold for the bytes that ran, for the worker that ran, and a tree's holds for a single branch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specops.config.patch import FileChange, Patch, PatchRelease
from specops.config.proof import Proof, best_proof, keep_proof, load_proofs, patch_bytes
from specops.errors import ConfigError


def patch_of(after: str, folder: Path = Path()) -> Patch:
    change = FileChange(path="srt/worker.py", before="a" * 64, after=after, diff="worker.diff")
    release = PatchRelease(files=(change,), modules=())
    return Patch(
        id="gate", title="t", gate="batch-gate", releases={"0.5.9": release}, flags={}, env={}, refuses=(),
        folder=folder,
    )  # fmt: skip


PATCH = patch_of("b" * 64)


def proof(**other: Any) -> Proof:
    plain = Proof(
        release="0.5.9", worker="v1", topk=4, level="cpu", bytes=patch_bytes(PATCH, "0.5.9"),
        date="2026-11-30", closed_steps=7,
    )  # fmt: skip
    return replace(plain, **other)


def test_the_furthest_proof_of_the_worker_counts() -> None:
    on_gpu = proof(level="gpu")
    assert best_proof([proof(), on_gpu], PATCH, "0.5.9", "v1", 4) == on_gpu
    assert best_proof([proof()], PATCH, "0.5.9", "v2", 4) is None


def test_a_tree_covers_a_single_branch_and_not_the_other_way_round() -> None:
    assert best_proof([proof()], PATCH, "0.5.9", "v1", 1) == proof()
    assert best_proof([proof(topk=1)], PATCH, "0.5.9", "v1", 4) is None


def test_one_other_byte_is_no_proof() -> None:
    assert best_proof([proof()], patch_of("c" * 64), "0.5.9", "v1", 4) is None


def test_a_run_takes_the_place_of_its_earlier_one(tmp_path: Path) -> None:
    keep_proof(tmp_path, proof(release="0.5.12.post1"))
    keep_proof(tmp_path, proof(level="applies only", reason="it died"))
    keep_proof(tmp_path, proof(level="gpu"))
    keep_proof(tmp_path, proof())
    assert [(one.release, one.level) for one in load_proofs(tmp_path)] == [
        ("0.5.9", "cpu"),
        ("0.5.9", "gpu"),
        ("0.5.12.post1", "cpu"),
    ]


def test_a_file_that_is_no_list_of_proofs_is_named(tmp_path: Path) -> None:
    assert load_proofs(tmp_path) == ()
    (tmp_path / "proof.json").write_text(json.dumps({"proofs": [{"release": "0.5.9"}]}))
    with pytest.raises(ConfigError, match=r"proof\.json:1"):
        load_proofs(tmp_path)
