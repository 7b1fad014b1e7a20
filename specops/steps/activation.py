"""Activation by copy: the server starts from a copy of the package; the install keeps its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from specops.steps.step import Command, Inert, Step

if TYPE_CHECKING:
    from specops.steps.files import FileChange

COPY = "{deploy_dir}/copy"
"""On the host; goes in front of the server's module path."""


def make_copy(changes: Sequence[FileChange]) -> Step:
    return Step(
        name="copy the package, with the changes in the copy",
        phase="stage",
        do=Command(op="copy.make", args={"files": _files(changes)}),
        undo=Command(op="copy.remove"),
    )


def prove_copy(changes: Sequence[FileChange], cookie: str) -> Step:
    return Step(
        name="prove that every process of the server has loaded the copy",
        phase="ready",
        do=Command(op="copy.prove", args={"files": _files(changes), "cookie": cookie}),
        undo=Inert("only looks"),
    )


def _files(changes: Sequence[FileChange]) -> list[dict[str, Any]]:
    return [{"path": change.path, "sha256": change.after} for change in changes]
