"""A patch carried over to other bytes: each hunk in the one place where its lines stand, or a conflict."""

from __future__ import annotations

from pathlib import Path

import pytest

from specops.config.patch import Origin, Patch, load_patch
from specops.steps.diff import make_diff, parse_diff, sha256
from specops.steps.patch import build_changes
from specops.steps.patch_folder import Head, write_patch
from specops.steps.rebase import Conflict, Placed, nearest, place_hunks
from specops.steps.rebase_view import show_conflict, show_placed

RELEASE = "".join(f"line {n}\n" for n in range(1, 41)).encode()
PATCHED = RELEASE.replace(b"line 10\n", b"line 10\nhook one\n").replace(b"line 30\n", b"hook two\n")


def place(
    before: bytes, release: bytes = RELEASE, patched: bytes = PATCHED
) -> tuple[bytes, list[Placed], list[Conflict]]:
    _, _, hunks = parse_diff(make_diff(release, patched, "w.py").encode(), "w.py")
    after, placed, conflicts = place_hunks("w.py", before, hunks)
    assert after is not None
    return after, placed, conflicts


def test_edits_around_the_hooks_move_them_and_stay() -> None:
    edited = b"# vendor\n" * 7 + RELEASE.replace(b"line 20\n", b"line 20 of ours\nand more\n")
    edited = edited.replace(b"line 14\n", b"line 14, one line below the first hunk's context\n")
    after, placed, conflicts = place(edited)
    assert conflicts == []
    assert [each.moved for each in placed] == [7, 8]
    assert after == edited.replace(b"line 10\n", b"line 10\nhook one\n").replace(b"line 30\n", b"hook two\n")


def test_not_a_byte_of_the_context_may_differ() -> None:
    edited = RELEASE.replace(b"line 12\n", b"line 12 \n")
    after, placed, conflicts = place(edited)
    assert after == edited, "nothing of a file is changed where one of its hunks has no place"
    assert [each.hunk.number for each in placed] == [2]
    shown = show_conflict(conflicts[0], edited)
    assert "its lines stand nowhere" in shown
    for words in ("++hook one", "<<<<<<< the install, from line 8\n", "line 12 \nline 13\n||||||| the"):
        assert words in shown


def test_a_hunk_that_fits_in_two_places_goes_to_none() -> None:
    twice = RELEASE + RELEASE[RELEASE.index(b"line 25") : RELEASE.index(b"line 36")]
    _, placed, conflicts = place(twice)
    assert [each.hunk.number for each in placed] == [1]
    assert conflicts[0].places == (27, 43)
    assert "it fits in 2 places (lines 27, 43)" in show_conflict(conflicts[0], twice)


def test_order_tells_two_equal_places_apart() -> None:
    block = b"if x:\n    pass\n    # end\n    return\n"
    release = b"".join(b"def f%d():\n" % n + block + b"#\n" * 9 for n in range(3))
    patched = release.replace(b"    return\n", b"    return 1\n")
    after, placed, conflicts = place(b"# ours\n" + release, release, patched)
    assert conflicts == []
    assert after == b"# ours\n" + patched
    assert len(placed) == 3


def test_it_is_shown_three_ways() -> None:
    _, placed, _ = place(b"# ours\n" + RELEASE)
    assert show_placed(placed[0]) == (
        "@@@ -8,6 -9,6 +9,7 @@@\n  line 8\n  line 9\n  line 10\n++hook one\n  line 11\n  line 12\n  line 13\n"
    )


@pytest.fixture
def patch(tmp_path: Path) -> Patch:
    """For two releases: in the second the first hook's lines are other ones."""
    folder = tmp_path / "gate"
    folder.mkdir()
    text = "id: gate\ntitle: t\nreleases:\n"
    for name, release in (("0.5.9", RELEASE), ("0.5.12", RELEASE.replace(b"line 9\n", b"line nine\n"))):
        patched = release.replace(b"line 10\n", b"line 10\nhook one\n")
        (folder / f"{name}.diff").write_text(make_diff(release, patched, "w.txt"))
        text += (
            f"  {name}:\n    modules: [sglang.w]\n    files:\n"
            f"      - {{path: w.txt, before: {sha256(release)}, after: {sha256(patched)}, "
            f"diff: {name}.diff}}\n"
            f"      - {{path: gate.py, before: absent, after: {sha256(b'G = 1')}, added: gate.py}}\n"
        )
    (folder / "gate.py").write_bytes(b"G = 1")
    (folder / "patch.yaml").write_text(text)
    return load_patch(folder)


def test_the_nearest_release_is_the_one_whose_hunks_fit(patch: Patch) -> None:
    assert nearest(patch, "0.5.12", {"w.txt": b"# ours\n" + RELEASE}).release == "0.5.9"
    assert (
        nearest(patch, "0.5.9", {"w.txt": RELEASE.replace(b"line 9\n", b"line nine\n")}).release == "0.5.12"
    )
    taken = nearest(patch, "0.5.9", {"w.txt": RELEASE, "gate.py": b"G = 2"})
    assert [(each.path, each.why) for each in taken.conflicts] == [
        ("gate.py", "the patch adds this file, but it exists")
    ]


def test_what_is_stored_is_pinned_to_the_new_bytes_and_says_where_it_is_from(
    patch: Patch, tmp_path: Path
) -> None:
    ours = b"# ours\n" + RELEASE
    found = nearest(patch, "0.5.9+acme", {"w.txt": ours})
    head = Head(
        id="gate-at-1",
        title="t",
        gate="batch-gate",
        flags={"f": "{threshold}"},
        origin=Origin(patch="gate", release="0.5.9"),
    )

    local = write_patch(tmp_path / "local", head, "0.5.9+acme", found.changes, ["sglang.w"])
    assert local.origin == Origin(patch="gate", release="0.5.9")
    assert (local.gate, local.flags) == ("batch-gate", {"f": "{threshold}"})
    built = {change.path: change.after for change in build_changes(local, "0.5.9+acme", {"w.txt": ours}.get)}
    assert built["w.txt"] == b"# ours\n" + RELEASE.replace(b"line 10\n", b"line 10\nhook one\n")
    assert built["gate.py"] == b"G = 1"
    assert [path.name for path in (tmp_path / "local").iterdir()] == ["gate-at-1"]
