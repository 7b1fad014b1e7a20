"""Files: check, back up, stage and swap, each with how it is taken back."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specops.steps.step import Command, Inert, Step


@dataclass(frozen=True, kw_only=True, slots=True)
class FileChange:
    """One file of the host that a plan replaces, creates (`before` None) or removes (`after` None)."""

    path: str
    """Absolute on the host."""
    before: str | None
    """sha256 that must be there now."""
    after: str | None
    """sha256 of what will be there."""
    content: bytes | None
    """The new bytes; None where the store of the host already holds them or the file goes."""

    @property
    def python(self) -> bool:
        return self.path.endswith(".py")


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def check_files(changes: Sequence[FileChange]) -> Step:
    """Compare-and-swap starts here: the host must still hold the bytes that the plan was made from."""
    return Step(
        name=f"check {_count(changes)} against the plan",
        phase="check",
        do=Command(op="files.check", args={"files": [{"path": c.path, "sha256": c.before} for c in changes]}),
        undo=Inert("only reads"),
    )


def back_up(changes: Sequence[FileChange]) -> Step:
    kept = [{"path": c.path, "sha256": c.before} for c in changes if c.before is not None]
    return Step(
        name=f"back up {_count(kept)}",
        phase="backup",
        do=Command(op="files.backup", args={"files": kept}),
        undo=Inert("copies in the store that nothing reads"),
    )


def stage(changes: Sequence[FileChange]) -> Step:
    staged = [{"path": c.path, "sha256": c.after, "python": c.python} for c in changes if c.after is not None]
    return Step(
        name=f"stage {_count(staged)}",
        phase="stage",
        do=Command(op="files.stage", args={"files": staged}),
        undo=Inert("bytes in the store that nothing reads"),
    )


def swap(changes: Sequence[FileChange]) -> Step:
    files = [{"path": c.path, "before": c.before, "after": c.after} for c in changes]
    return Step(
        name=f"swap {_count(changes)}",
        phase="swap",
        do=Command(op="files.swap", args={"files": files}),
        undo=Command(op="files.restore", args={"files": files}),
    )


def _count(files: Sequence[Any]) -> str:
    return f"{len(files)} file" + ("" if len(files) == 1 else "s")
