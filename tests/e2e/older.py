"""A lab with an older SGLang and nothing serving, and what tests do to its install."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from specops.config.patch import Patch, load_patches
from specops.lab import environment
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
DEADLINE_S = 2700
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


def editable_checkout(lab: LabState, folder: Path, version: str, edits: Mapping[str, bytes]) -> LabState:
    """The lab as a developer has it: a git checkout with edits of its own, installed editable into another
    environment. Returns the lab with that as its host's install; the lab's own install is not touched."""
    tree = folder / "checkout" / "python" / "sglang"
    shutil.copytree(lab.package, tree, copy_function=environment.link)
    number = (tree / "_version.py").read_bytes().replace(lab.release.encode(), version.encode())
    for path, content in {**edits, "_version.py": number}.items():
        (tree / path).unlink()  # a hard link to what others use
        (tree / path).write_bytes(content)
    (folder / "checkout" / ".gitignore").write_text("__pycache__/\n_version.py\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "ours"]):
        git(folder / "checkout", *words)

    subprocess.run([lab.python, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (site,) = (folder / "venv").glob("lib/python3*/site-packages")
    (site / f"sglang-{version}.dist-info").mkdir()
    (site / "editable.pth").write_text(f"{tree.parent}\n{Path(lab.package).parent}\n")
    made = replace(lab, python=str(folder / "venv" / "bin" / "python"), package=str(tree))
    hosts = {"hosts": {lab.name: labs.inventory_entry(made)}}
    made = replace(made, folder=str(folder))
    made.inventory.write_text(json.dumps(hosts))
    return made


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=dev", "-c", "user.email=dev@example.org")
    argv = ["git", *who, *words]
    return subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True).stdout
