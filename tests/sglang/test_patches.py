"""Patches against the real files of the lab's SGLang wheel."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from specops.config.patch import for_release, load_patches
from specops.config.releases import load_releases
from specops.config.shipped import shipped
from specops.lab.lab import LabState
from specops.steps.patch import build_changes, verify

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
