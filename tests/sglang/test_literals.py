"""What the agent looks for in logs is what this release of SGLang writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from specops.lab.lab import LabState

LITERALS = [
    "Scheduler hit an exception: ",
    "Initialization failed. warmup error: ",
    "Received sigquit from a child process",
    "SIGQUIT received. ",
    "Not enough memory. Please try to increase --mem-fraction-static",
    "The memory capacity is unbalanced. Some GPUs may be occupied",
    "speculative_adaptive disabled: ",
    "is not in the adaptive config",
    "candidate_steps must be a list of",
    "shared logits buffer holds ",
    "memory leak detected!",
    "out of memory. Try to lower your batch size",
    "is used by a process already",
    "could finish the model loading, but there are other ranks",
    "died during initialization",
    "is less than the minimum required version ",
    "shard file(s) missing",
    "Loaded weights leave no GPU memory for the KV cache",
    "watchdog timeout ",
    "Max running requests is reset to 48 for speculative decoding",
    "The server is fired up and ready to roll!",
    "Init torch distributed begin.",
    "Load weight begin. ",
    "Load weight end. ",
    "Memory pool end. ",
    "SIGTERM received. ",
]


@pytest.fixture(scope="module")
def sources(session_lab: LabState) -> str:
    files = (Path(session_lab.package) / "srt").rglob("*.py")
    return "\n".join(file.read_text(errors="replace") for file in files)


@pytest.mark.parametrize("literal", LITERALS)
def test_sglang_still_writes_it(literal: str, sources: str) -> None:
    assert literal in sources
