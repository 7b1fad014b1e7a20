"""Patches: the shipped ones load, and what an install's files are is told by hash alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from specops.config.patch import (
    ABSENT,
    Patch,
    find_patch,
    for_release,
    gate_patches,
    load_patches,
    state_of,
)
from specops.config.releases import load_releases, pristine_of
from specops.config.shipped import shipped
from specops.errors import ConfigError, Refused

DEMO = "demo-dies-above-threshold"
TEST_PATCHES = Path(__file__).parents[2] / "patches"
WORKER = "srt/speculative/eagle_worker_v2.py"


@pytest.fixture(scope="module")
def patches() -> dict[str, Patch]:
    return load_patches(shipped("patches"), TEST_PATCHES)


def test_the_shipped_patches_are_pinned_to_the_wheels(patches: dict[str, Patch]) -> None:
    releases = load_releases()
    compared = 0
    for patch in patches.values():
        for release, content in patch.releases.items():
            for change in content.files:
                pristine = releases[release].files.get(change.path)
                if pristine is not None:
                    assert change.before == pristine, f"{patch.id} {release} {change.path}"
                    compared += 1
    assert compared >= 3


def test_the_demo_patch_says_what_it_is(patches: dict[str, Patch]) -> None:
    demo = patches[DEMO]
    assert demo.title == "answers C=1, dies above T: for the demo and the tests"
    assert demo.gate is None
    assert DEMO not in gate_patches(patches, "0.5.18")
    assert for_release(demo, "0.5.18").modules == ("sglang.srt.speculative.eagle_worker_v2",)


def test_what_the_files_of_an_install_are(patches: dict[str, Patch]) -> None:
    demo = patches[DEMO]
    change = for_release(demo, "0.5.18").files[0]
    harmless = for_release(patches["harmless"], "0.5.18").files[0]
    known = patches.values()

    def state(found: str | None) -> tuple[str, str | None]:
        (only,) = state_of(demo, "0.5.18", {WORKER: found}, known)
        return only.state, only.patch

    assert state(change.before) == ("pristine", None)
    assert state(change.after) == ("applied", DEMO)
    assert state(harmless.after) == ("other-patch", "harmless")
    assert state("0" * 64) == ("drifted", None)
    assert state(None) == ("drifted", None)


def test_a_release_without_the_patch_is_refused(patches: dict[str, Patch]) -> None:
    with pytest.raises(Refused, match=r"was not made for SGLang 0\.5\.20; it was made for 0\.5\.18"):
        for_release(patches[DEMO], "0.5.20")
    with pytest.raises(ConfigError, match=f"did you mean '{DEMO}'"):
        find_patch(patches, "demo-dies-above-treshold")


def test_two_patches_with_one_id_are_refused(tmp_path: Path) -> None:
    shutil.copytree(TEST_PATCHES / "harmless", tmp_path / "harmless")
    with pytest.raises(ConfigError, match="is already in"):
        load_patches(TEST_PATCHES, tmp_path)


def test_what_the_wheels_are_known_by() -> None:
    releases = load_releases()
    assert len(releases) == 29
    assert next(iter(releases)) == "0.5.5"
    assert list(releases)[-1] == "0.5.23"
    assert pristine_of(WORKER, releases["0.5.18"].files[WORKER]) == ("0.5.18",)
    assert pristine_of(WORKER, releases["0.5.12"].files[WORKER]) == ("0.5.12", "0.5.12.post1")
    assert pristine_of(WORKER, ABSENT) == ()
