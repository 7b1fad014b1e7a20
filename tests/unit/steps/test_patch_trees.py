"""A patch from two trees does to the first what makes it the second."""

from __future__ import annotations

from pathlib import Path

import pytest

from specops.config.patch import Origin, Patch, load_patches
from specops.errors import ConfigError, UsageError
from specops.steps.patch import build_changes
from specops.steps.patch_trees import patch_from_trees


def tree(folder: Path, **files: bytes) -> Path:
    said = {"__init__.py": b"", "_version.py": b"__version__ = version = '0.5.12.post1'\n", **files}
    for path, content in said.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def make(before: Path, after: Path, into: Path, patch: str = "ours") -> object:
    return patch_from_trees(patch, before, after, into, title="", release=None, gate=True)


def test_changed_added_and_removed_files(tmp_path: Path) -> None:
    old = {"srt/worker.py": b"A = 1\n", "srt/gone.py": b"B = 1\n", "__pycache__/x.pyc": b"1"}
    new = {"srt/worker.py": b"A = 2\n", "srt/new/__init__.py": b"C = 1\n", "kernel.cu": b"k\n"}
    before, after = tree(tmp_path / "a", **old), tree(tmp_path / "b", **new)
    made = patch_from_trees("ours", before, after, tmp_path / "p", title="", release=None, gate=True)
    assert made.gate == "batch-gate"
    content = made.releases["0.5.12.post1"]
    assert content.modules == ("sglang.srt.new", "sglang.srt.worker")
    built = build_changes(made, "0.5.12.post1", lambda path: old.get(path))
    assert {change.path: change.after for change in built} == {**new, "srt/gone.py": None}


@pytest.mark.parametrize(
    ("patch", "after", "words"),
    [
        ("ours", {}, "do not differ"),
        ("Ours", {"a.py": b"A = 1\n"}, "must be lower-case words"),
    ],
)
def test_nothing_to_make_a_patch_of(tmp_path: Path, patch: str, after: dict[str, bytes], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make(tree(tmp_path / "a"), tree(tmp_path / "b", **after), tmp_path / "p", patch)


def test_a_patch_that_could_not_be_used_is_not_stored(tmp_path: Path) -> None:
    for before, after, words in (
        (b"A = 1\n", b"A = = 1\n", "invalid syntax"),
        (b"\xff\xfe1", b"\xff\xfe2", "is not text, and a patch can add such a file but not change it"),
    ):
        old, new = tree(tmp_path / "a", **{"w.py": before}), tree(tmp_path / "b", **{"w.py": after})
        with pytest.raises(ConfigError, match=words):
            make(old, new, tmp_path / "p")
        assert list((tmp_path / "p").iterdir()) == []


def test_one_merged_by_hand_is_like_the_patch_that_it_carries_over(tmp_path: Path) -> None:
    gate = load_patches()["batch-gate"]
    before = tree(tmp_path / "a", **{"w.py": b"A = 1\n"})

    def merge(content: bytes) -> Patch:
        after = tree(tmp_path / "b", **{"w.py": content})
        return patch_from_trees(
            "ours", before, after, tmp_path / "p", title="", release=None, gate=False, like=gate
        )

    made, other = merge(b"A = 2\n"), merge(b"A = 3\n")
    assert (made.gate, made.flags, made.refuses) == (gate.gate, gate.flags, gate.refuses)
    assert made.origin == Origin(patch="batch-gate", release="0.5.12.post1")
    assert made.id.startswith("ours-at-")
    assert made.id != other.id, "what a host has proven of one is no proof of the other"
