"""Reading ahead: bounded by time and by the wish to end, and it tells what came from disk."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from specops.remote import warm
from specops.remote.context import Context

SIZE = 24 << 20


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("a", "b"):
        with open(folder / f"{name}.safetensors", "wb") as file:
            file.write(os.urandom(SIZE))
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return folder


def test_weights_come_from_disk_once(model: Path, ctx: Context) -> None:
    cold = warm.warm(ctx, {"models": [str(model), "/no/such"], "max_s": 60})
    assert (cold["bytes"], cold["whole"]) == (2 * SIZE, True)
    assert cold["from_disk"] >= SIZE
    again = warm.warm(ctx, {"models": [str(model)], "max_s": 60})
    assert again["whole"]
    assert again["from_disk"] < SIZE // 2
    assert "MiB of weights are in memory" in again["summary"]


def test_it_ends_when_time_is_over_or_the_deploy_is(model: Path, ctx: Context) -> None:
    for on, max_s in ((ctx, 0), (replace(ctx, aborted=lambda: "told to"), 60)):
        found = warm.warm(on, {"models": [str(model)], "max_s": max_s})
        assert not found["whole"]
        assert found["bytes"] <= warm.PIECE


def test_it_never_fills_more_of_the_memory_than_there_is(
    model: Path, ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm, "available", lambda: 10 << 20)
    assert warm.warm(ctx, {"models": [str(model)], "max_s": 60})["bytes"] <= warm.PIECE
