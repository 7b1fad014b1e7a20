"""Patches against the real files of SGLang's wheels."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks import patch_matrix
from specops.config.patch import for_release, load_patches
from specops.config.proof import best_proof, load_proofs
from specops.config.releases import load_releases
from specops.config.shipped import shipped
from specops.lab.lab import LabState
from specops.lab.matrix import Cell
from specops.steps.patch import build_changes, verify
from tests.e2e.command import specops
from tests.sglang.wheels import unpack

RELEASE = "0.5.18"
OURS = ["demo-dies-above-threshold", "breaks-lazy-import", "harmless"]
PATCHES = load_patches(shipped("patches"), Path(__file__).parents[1] / "patches")


def test_the_known_hashes_are_those_of_the_wheel(lab: LabState) -> None:
    files = load_releases()[RELEASE].files
    found = {path: hashlib.sha256((Path(lab.package) / path).read_bytes()).hexdigest() for path in files}
    assert found == dict(files)


@pytest.mark.parametrize("patch_id", OURS)
def test_a_patch_fits_and_makes_the_bytes_that_git_makes(
    patch_id: str, lab: LabState, tmp_path: Path
) -> None:
    patch = PATCHES[patch_id]
    root = Path(lab.package)
    assert [result.problem for result in verify(patch, RELEASE, root)] == [""]
    (change,) = build_changes(patch, RELEASE, lambda path: (root / path).read_bytes())
    (tmp_path / change.path).parent.mkdir(parents=True)
    shutil.copy(root / change.path, tmp_path / change.path)
    diff = patch.folder / str(for_release(patch, RELEASE).files[0].diff)
    subprocess.run(["git", "apply", str(diff)], cwd=tmp_path, check=True)
    assert (tmp_path / change.path).read_bytes() == change.after


GATE = PATCHES["batch-gate"]
LATER = ("0.5.15.post1", "0.5.18", "0.5.20", "0.5.23")
OF_THE_MATRIX = ("0.5.5", "0.5.8", "0.5.9", "0.5.12.post1", "0.5.18", "0.5.23")
SAMPLE = ("0.5.5", "0.5.6.post2", "0.5.8", "0.5.10.post1", "0.5.12.post1", "0.5.13.post1", *LATER)


@pytest.mark.parametrize("release", SAMPLE)
def test_the_batch_gate_fits_the_wheel(release: str, tmp_path: Path) -> None:
    hooked = [file.path for file in for_release(GATE, release).files if not file.added]
    package = unpack(release, tmp_path, *hooked)
    assert [result for result in verify(GATE, release, package) if not result.ok] == []


def test_six_releases_are_verified_as_their_matrix_says(lab: LabState) -> None:
    """Imports and flags wherever an environment for the release is here; the later ones share the lab's."""
    releases = [word for release in OF_THE_MATRIX for word in ("--release", release)]
    ran = specops("patch", "verify", "batch-gate", "--all", *releases, "--json")
    assert ran.code == 0, ran.out + ran.err
    rows = ran.events("matrix")[0]["matrix"]["rows"]
    kept = json.loads(patch_matrix.RESULT.read_text())["rows"]
    ways = ("release", "worker", "topk", "applies", "proof")
    assert [[row[key] for key in ways] for row in rows] == [
        [row[key] for key in ways] for row in kept if row["release"] in OF_THE_MATRIX
    ]
    seen = {(row["imports"], row["flags"]) for row in rows}
    assert seen <= {("yes", "yes"), ("no environment", "no environment")}
    assert {row["imports"] for row in rows if row["release"] in ("0.5.18", "0.5.23")} == {"yes"}


def test_a_patch_that_does_not_import_is_no_patch_for_the_matrix(lab: LabState) -> None:
    folder = str(Path(__file__).parents[1] / "patches")
    ran = specops("patch", "verify", "breaks-lazy-import", "--all", "--patches", folder, "--json")
    assert ran.code == 16, ran.out + ran.err
    (row,) = ran.events("matrix")[0]["matrix"]["rows"]
    assert (row["applies"], row["imports"], row["flags"]) == (True, "no", "not tried")
    assert "import of sglang.srt.speculative.eagle_worker_v2: ImportError" in row["reason"]


def test_the_readme_shows_the_matrix_as_it_was_built() -> None:
    rows = json.loads(patch_matrix.RESULT.read_text())["rows"]
    cells = [Cell(**row) for row in rows]
    text = patch_matrix.README.read_text()
    assert patch_matrix.with_section(text, cells) == text
    assert {cell.release for cell in cells} == set(GATE.releases)


def test_the_matrix_claims_what_the_proofs_of_todays_bytes_say() -> None:
    rows = json.loads(patch_matrix.RESULT.read_text())["rows"]
    proofs = load_proofs(GATE.folder)
    for row in rows:
        proof = best_proof(proofs, GATE, row["release"], row["worker"], row["topk"])
        assert row["proof"] == (proof.level if proof else "applies only"), row
