"""Building and verifying a patch: what comes out is what was pinned, or it is refused with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from specops.config.patch import Patch, load_patch
from specops.errors import ConfigError
from specops.steps.diff import make_diff, sha256
from specops.steps.patch import build_changes, stack_changes, verify

BEFORE = b"import os\n\n\ndef steps():\n    return 3\n"
AFTER = BEFORE.replace(b"return 3", b"return 0")
TWICE = AFTER.replace(b"import os", b"import sys")
ADDED = b"GATE = True\n"
HEAD = 'id: {id}\ntitle: t\nreleases:\n  "1.0":\n    modules: []\n    files:\n'


def change_of(before: bytes | None, after: bytes | None, name: str) -> str:
    kind = "added" if before is None else "diff"
    return (
        f"      - {{path: srt/{name}.py, before: {sha256(before) or 'absent'}, "
        f"after: {sha256(after) or 'absent'}, {kind}: {name}.{kind}}}\n"
    )


def make_patch(folder: Path, before: bytes, after: bytes, added: bytes | None = None) -> Patch:
    folder.mkdir(parents=True)
    text = HEAD.format(id=folder.name) + change_of(before, after, "worker")
    (folder / "worker.diff").write_text(make_diff(before, after, "srt/worker.py"))
    if added is not None:
        text += change_of(None, added, "gate")
        (folder / "gate.added").write_bytes(added)
    (folder / "patch.yaml").write_text(text)
    return load_patch(folder)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "sglang" / "srt").mkdir(parents=True)
    (tmp_path / "sglang" / "srt" / "worker.py").write_bytes(BEFORE)
    return tmp_path / "sglang"


def test_a_good_patch_is_verified_and_built(tmp_path: Path, root: Path) -> None:
    patch = make_patch(tmp_path / "good", BEFORE, AFTER, ADDED)
    assert [(result.path, result.ok) for result in verify(patch, "1.0", root)] == [
        ("srt/worker.py", True),
        ("srt/gate.py", True),
    ]
    built = build_changes(patch, "1.0", {"srt/worker.py": BEFORE}.get)
    assert [(change.before, change.after) for change in built] == [(BEFORE, AFTER), (None, ADDED)]
    assert (root / "srt" / "worker.py").read_bytes() == BEFORE


def test_other_bytes_before_are_refused(tmp_path: Path, root: Path) -> None:
    patch = make_patch(tmp_path / "pinned", BEFORE, AFTER, ADDED)
    (root / "srt" / "worker.py").write_bytes(BEFORE + b"\n")
    (root / "srt" / "gate.py").write_bytes(b"")
    first, second = verify(patch, "1.0", root)
    assert "but the patch is pinned to" in first.problem
    assert "pinned to absent" in second.problem


def test_other_bytes_after_are_refused(tmp_path: Path, root: Path) -> None:
    patch = make_patch(tmp_path / "lies", BEFORE, AFTER)
    diff = patch.folder / "worker.diff"
    diff.write_text(diff.read_text().replace("return 0", "return 1"))
    (result,) = verify(patch, "1.0", root)
    assert f"the patch makes {sha256(AFTER.replace(b'return 0', b'return 1'))}" in result.problem


def test_a_diff_that_does_not_fit_is_named_by_its_line(tmp_path: Path, root: Path) -> None:
    patch = make_patch(tmp_path / "unfit", BEFORE, AFTER)
    diff = patch.folder / "worker.diff"
    diff.write_text(diff.read_text().replace("-    return 3", "-    return 4"))
    (result,) = verify(patch, "1.0", root)
    assert result.problem.startswith(f"{diff}:3: ")
    assert "does not fit at line 5" in result.problem


def test_python_that_does_not_compile_is_refused(tmp_path: Path, root: Path) -> None:
    patch = make_patch(tmp_path / "broken", BEFORE, AFTER.replace(b"return 0", b"return ("))
    (result,) = verify(patch, "1.0", root)
    assert "srt/worker.py, line 5: " in result.problem


def test_patches_stack_in_the_order_given(tmp_path: Path) -> None:
    one = make_patch(tmp_path / "one", BEFORE, AFTER)
    two = make_patch(tmp_path / "two", AFTER, TWICE)
    changes = stack_changes([(one, "1.0"), (two, "1.0")], {"srt/worker.py": BEFORE})
    assert (changes["srt/worker.py"].before, changes["srt/worker.py"].after) == (BEFORE, TWICE)
    with pytest.raises(ConfigError, match="pinned to"):
        stack_changes([(two, "1.0"), (one, "1.0")], {"srt/worker.py": BEFORE})
