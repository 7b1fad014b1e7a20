"""Logs of real servers on H200 cards (tests/recorded, trimmed): how far a load is, and what killed it."""

from __future__ import annotations

from pathlib import Path

import pytest

from specops.remote.diagnose import Diagnosis, describe
from specops.remote.logscan import LogReader, Progress

RECORDED = Path(__file__).parents[2] / "recorded"
WHOLE = [
    "arguments", "processes", "process group", "weights", "weights loaded", "kv cache", "graph capture",
    "scheduler", "http", "warm-up done",
]  # fmt: skip
STARTED = (
    "no-spec_0.5.15.post1",
    "eagle3-v2_0.5.15.post1",
    "native-gate_0.5.15.post1",
    "batch-gate-v2_0.5.15.post1",
    "batch-gate-v1_0.5.12.post1",
)


def read(name: str) -> tuple[Progress, list[tuple[str, float]], Diagnosis]:
    """The progress, what it said on its way, and the diagnosis, as if every line came at its own second."""
    progress, said, diagnosis = Progress(), [], Diagnosis(gate_expected=True)
    for number, line in enumerate(LogReader(RECORDED / f"{name}.log").read_lines(final=True)):
        progress.take(line)
        if progress.changed():
            said.append((progress.milestone, progress.fraction))
        diagnosis.feed(line, float(number))
    return progress, said, diagnosis


@pytest.mark.parametrize("name", STARTED)
def test_a_load_passes_every_milestone_in_order_and_nothing_is_wrong_with_it(name: str) -> None:
    progress, said, diagnosis = read(name)
    # The end of the graphs is said only where their last step was not that far already.
    passed = dict.fromkeys(name for name, _ in said if name not in ("started", "graphs captured"))
    assert list(passed) == WHOLE
    assert [fraction for _, fraction in said] == sorted(fraction for _, fraction in said)
    assert progress.fraction == 1.0
    root = diagnosis.root()
    assert root is None, describe(root)


def test_graphs_of_two_models_are_one_phase_that_never_goes_back() -> None:
    _, said, _ = read("eagle3-v2_0.5.15.post1")
    captured = [fraction for milestone, fraction in said if milestone == "graph capture"]
    assert len(captured) > 3
    assert 0.70 <= captured[0] < captured[-1] <= 0.85


def test_a_checkpoint_in_shards_is_followed_shard_by_shard() -> None:
    """Five shards of 14.5 GB read by several threads: that line has a form of its own."""
    progress, said, diagnosis = read("shards_0.5.15.post1")
    read_so_far = [fraction for milestone, fraction in said if milestone == "weights"]
    assert read_so_far == pytest.approx([0.20, 0.36, 0.44, 0.52, 0.60])
    assert (progress.fraction, diagnosis.root()) == (1.0, None)


def test_both_ranks_are_seen_and_the_death_of_one_is_not_blamed_on_the_other() -> None:
    progress, said, diagnosis = read("tp2-rank-killed_0.5.12.post1")
    assert said[-1] == ("warm-up done", 1.0)
    for milestone in ("processes", "process group", "weights loaded", "kv cache", "scheduler"):
        assert {rank for rank in progress.seen[milestone] if rank} >= {"TP0"}, milestone
    assert {"TP0", "TP1"} <= progress.seen["weights loaded"]
    root = diagnosis.root()
    assert root is not None
    assert (root.secondary, root.signature and root.signature.id) == (True, "GLOO_CLOSED")


@pytest.mark.parametrize(
    ("name", "cause", "word"),
    [
        ("dies-above-threshold_0.5.12.post1", "SCHED_EXC", "'NoneType' object has no attribute 'dtype'"),
        ("dies-in-capture_0.5.12.post1", "CAPTURE_FAIL", "failed to dispatch data type Float"),
        ("out-of-memory_0.5.15.post1", "CUDA_OOM", "Tried to allocate 1.96 GiB"),
        ("kernel-too-old_0.5.15.post1", "PACKAGE_OLD", "less than the minimum required version 0.4.4"),
    ],
)
def test_what_killed_it_is_named(name: str, cause: str, word: str) -> None:
    _, _, diagnosis = read(name)
    root = diagnosis.root()
    assert root is not None
    told = describe(root)
    assert (told["id"], word in told["message"]) == (cause, True)
