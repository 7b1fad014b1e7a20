"""A lab with an older SGLang and nothing serving, and what tests do to its install."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from specops.config.patch import Patch, load_patches
from specops.lab import lab as labs
from specops.lab.lab import LabState
from specops.steps.diff import parse_diff
from specops.steps.patch import build_changes
from specops.steps.patch_folder import Head, write_patch
from tests.conftest import CACHE
from tests.e2e.command import Ran, specops
from tests.e2e.server import can_bind

RELEASE = "0.5.12.post1"
V2 = (
    "draft.topk=1",
    "draft.num_steps=3",
    "draft.num_draft_tokens=0",
    "server.args.disable-overlap-schedule=false",
)
"""EAGLEWorkerV2 instead of the playbook's EAGLEWorker with 4 branches, 5 steps and 16 tokens."""
DEADLINE_S = 1500
"""Of one command: rehearsal, load and the whole smoke test, on a machine that may be busy."""
CHECKS = tuple(f"S{n}" for n in range(8))


@contextmanager
def older_lab(release: str = RELEASE) -> Iterator[LabState]:
    saved = os.environ.get("SPECOPS_LAB_HOME")
    os.environ["SPECOPS_LAB_HOME"] = str(CACHE)
    name = f"older-{release.replace('.', '-')}"
    try:
        state = labs.up(release=release, name=name, serve=False)
        yield state
        labs.down(name)
        assert can_bind(state.port)
    finally:
        labs.down(name)
        if saved is None:
            del os.environ["SPECOPS_LAB_HOME"]
        else:
            os.environ["SPECOPS_LAB_HOME"] = saved


def at(lab: LabState, *words: str, settings: tuple[str, ...] = (), env: dict[str, str] | None = None) -> Ran:
    """A command about the lab's one host, as JSON lines."""
    more = [word for setting in settings for word in ("--set", setting)]
    return specops(
        *words,
        "--inventory",
        str(lab.inventory),
        "--host",
        lab.name,
        *more,
        "--json",
        env=env,
        deadline_s=DEADLINE_S,
    )


def shipped_gate() -> Patch:
    return load_patches()["batch-gate"]


def broken_gate(lab: LabState, folder: Path) -> Path:
    """The shipped gate with one line wrong: a closed step of v1 feeds every last token twice."""
    patch, package = shipped_gate(), Path(lab.package)
    right, wrong = b"batch.input_ids = last\n", b"batch.input_ids = last.repeat(2)\n"

    def read(path: str) -> bytes | None:
        return (package / path).read_bytes() if (package / path).is_file() else None

    changes = build_changes(patch, lab.release, read)
    assert sum((change.after or b"").count(right) for change in changes) == 1
    changes = [replace(each, after=(each.after or b"").replace(right, wrong)) for each in changes]
    head = Head(
        id="broken-gate", title="dies above T", gate=patch.gate, flags=patch.flags, refuses=patch.refuses
    )
    write_patch(folder, head, lab.release, changes, patch.releases[lab.release].modules)
    return folder


def vendor_edits(package: Path, release: str = RELEASE, count: int = 20) -> dict[str, bytes]:
    """Path -> new bytes: `count` comments all over the files that the gate hooks, one of them right below the
    lines of a hunk, none inside of one."""
    patch = shipped_gate()
    diffs = {f.path: patch.folder / f.diff for f in patch.releases[release].files if f.diff}
    edited = {}
    for number, (path, diff) in enumerate(sorted(diffs.items())):
        lines = (package / path).read_bytes().split(b"\n")
        _, _, hunks = parse_diff(diff.read_bytes(), path)
        taken = {
            line for hunk in hunks for line in range(hunk.old_start - 1, hunk.old_start + len(hunk.old_lines))
        }
        spots = [n for n, line in enumerate(lines) if line.startswith(b"    def ") and n not in taken]
        share = count // len(diffs) + (number < count % len(diffs))
        chosen = spots[:: max(len(spots) // share, 1)][:share]
        assert len(chosen) == share
        if number == 0:
            below = hunks[0].old_start - 1 + len(hunks[0].old_lines)
            chosen[0] = below
        for spot in sorted(chosen, reverse=True):
            lines.insert(spot, b"    # vendor: edit %d of %s" % (spot, path.encode()))
        edited[path] = b"\n".join(lines)
    return edited


@contextmanager
def edited(lab: LabState, files: dict[str, bytes]) -> Iterator[None]:
    """Other bytes in some files of the install, by rename: they are hard links to what others use."""
    package = Path(lab.package)
    saved = {path: (package / path).read_bytes() for path in files}
    try:
        for path, content in files.items():
            _replace(package / path, content)
        yield
    finally:
        for path, content in saved.items():
            _replace(package / path, content)


def _replace(path: Path, content: bytes) -> None:
    temp = path.with_name(f".{path.name}.edit")
    temp.write_bytes(content)
    temp.chmod(path.stat().st_mode)
    temp.rename(path)
