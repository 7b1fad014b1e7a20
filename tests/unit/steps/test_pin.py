"""Pinning: hashes go where they belong and nothing else of patch.yaml moves."""

from __future__ import annotations

from pathlib import Path

import pytest

from specops.config.patch import load_patch
from specops.errors import ConfigError
from specops.steps.diff import make_diff, sha256
from specops.steps.pin import pin

BEFORE, AFTER, GATE = b"steps = 3\n", b"steps = 0\n", b"GATE = True\n"
TEXT = """\
# made by hand
id: gate
title: t
releases:
  "1.0": &first
    files:
      - &worker
        path: srt/worker.py
        before: {zero}
        after: {one}   # as it says
        diff: worker.diff
      - {{path: srt/gate.py, before: absent, after: {one}, added: gate.py}}
    modules: []
  "1.0.post1": *first
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "gate"
    folder.mkdir()
    (folder / "worker.diff").write_text(make_diff(BEFORE, AFTER, "srt/worker.py"))
    (folder / "gate.py").write_bytes(GATE)
    (folder / "patch.yaml").write_text(TEXT.format(zero="0" * 64, one="1" * 64))
    return folder


def test_it_writes_what_the_bytes_are_and_keeps_the_rest(folder: Path) -> None:
    files = {"srt/worker.py": BEFORE}
    assert pin(folder, "1.0", files.get) == 3
    assert pin(folder, "1.0.post1", files.get) == 0
    text = (folder / "patch.yaml").read_text()
    assert text.startswith("# made by hand\n")
    assert f"after: {sha256(AFTER)}   # as it says\n" in text
    worker, gate = load_patch(folder).releases["1.0.post1"].files
    assert (worker.before, worker.after) == (sha256(BEFORE), sha256(AFTER))
    assert (gate.before, gate.after) == ("absent", sha256(GATE))


def test_a_diff_that_does_not_apply_is_named_and_nothing_is_written(folder: Path) -> None:
    text = (folder / "patch.yaml").read_text()
    with pytest.raises(ConfigError, match=r"worker\.diff:"):
        pin(folder, "1.0", {"srt/worker.py": b"steps = 4\n"}.get)
    assert (folder / "patch.yaml").read_text() == text
