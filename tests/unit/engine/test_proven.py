"""What only applies is refused, unless somebody says that it may be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specops.config.patch import FileChange, Patch, PatchRelease
from specops.config.playbook import Draft, Environment, Model, Playbook, Server
from specops.config.proof import Proof, keep_proof, patch_bytes
from specops.engine.proven import require_tried, worker_of
from specops.errors import Refused

RELEASE = "0.5.9"


@pytest.fixture
def patch(tmp_path: Path) -> Patch:
    change = FileChange(path="srt/worker.py", before="a" * 64, after="b" * 64, diff="worker.diff")
    release = PatchRelease(files=(change,), modules=())
    return Patch(
        id="gate", title="t", gate="batch-gate", releases={RELEASE: release}, flags={}, env={}, refuses=(),
        folder=tmp_path,
    )  # fmt: skip


def playbook(topk: int = 4, **env: str) -> Playbook:
    return Playbook(
        name="p",
        model=Model(path="/models/target"),
        draft=Draft(path="/models/draft", topk=topk),
        server=Server(),
        env=Environment(set=env),
    )


def prove(patch: Patch, **other: Any) -> None:
    fields = {"worker": "v1", "topk": 4, "level": "cpu", **other}
    keep_proof(
        patch.folder,
        Proof(release=RELEASE, bytes=patch_bytes(patch, RELEASE), date="2026-11-30", **fields),
    )


def test_a_patch_that_nothing_has_run_is_refused_and_says_how_to_insist(patch: Patch) -> None:
    with pytest.raises(Refused, match=r"only.*0\.5\.9.*EAGLEWorker and topk 4") as caught:
        require_tried([patch], RELEASE, playbook(), {}, accepted=False)
    assert "--accept-unproven" in (caught.value.next_command or "")
    require_tried([patch], RELEASE, playbook(), {}, accepted=True)


def test_a_run_of_the_worker_is_enough_and_that_of_the_other_is_not(patch: Patch) -> None:
    prove(patch)
    require_tried([patch], RELEASE, playbook(), {}, accepted=False)
    require_tried([patch], RELEASE, playbook(topk=1), {}, accepted=False)
    with pytest.raises(Refused, match="EAGLEWorkerV2"):
        require_tried([patch], RELEASE, playbook(1, SGLANG_ENABLE_SPEC_V2="1"), {}, accepted=False)


def test_a_run_that_failed_is_quoted(patch: Patch) -> None:
    prove(patch, level="applies only", reason="ImportError: no such kernel")
    with pytest.raises(Refused, match="no such kernel"):
        require_tried([patch], RELEASE, playbook(), {}, accepted=False)


@pytest.mark.parametrize(
    ("release", "topk", "args", "env", "worker"),
    [
        ("0.5.9", 1, {}, {}, "v1"),
        ("0.5.9", 1, {}, {"SGLANG_ENABLE_SPEC_V2": "true"}, "v2"),
        ("0.5.6", 4, {}, {"SGLANG_ENABLE_SPEC_V2": "1"}, "v2"),
        ("0.5.12.post1", 1, {}, {}, "v2"),
        ("0.5.12.post1", 4, {}, {}, "v1"),
        ("0.5.12.post1", 1, {"disable-overlap-schedule": True}, {}, "v1"),
        ("0.5.12.post1", 1, {}, {"SGLANG_ENABLE_SPEC_V2": "0"}, "v1"),
        ("0.5.13", 4, {"disable-overlap-schedule": True}, {}, "v2"),
    ],
)
def test_the_worker_is_the_one_that_the_release_would_choose(
    release: str, topk: int, args: dict[str, Any], env: dict[str, str], worker: str
) -> None:
    assert worker_of(release, topk, args, env) == worker
