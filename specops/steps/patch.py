"""Verifies a patch against an unpacked release, and builds the changes that a plan stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from specops.config.patch import FileChange, Patch, for_release
from specops.errors import ConfigError
from specops.steps.diff import DiffError, PatchChange, apply_diff, sha256


@dataclass(frozen=True, kw_only=True, slots=True)
class FileResult:
    """How one file of a patch did; `problem` is empty where all is well."""

    path: str
    problem: str

    @property
    def ok(self) -> bool:
        return not self.problem


def verify(patch: Patch, release: str, root: Path) -> list[FileResult]:
    """Hash, apply, hash again and compile each file; `root` is an untouched `sglang` folder of that release.

    Raises Refused where the patch was not made for the release.
    """

    def read(path: str) -> bytes | None:
        file = root / path
        return file.read_bytes() if file.is_file() else None

    results: list[FileResult] = []
    for change in for_release(patch, release).files:
        try:
            built = build_change(patch, change, read(change.path))
            compile_python(patch, built)
            results.append(FileResult(path=change.path, problem=""))
        except ConfigError as error:
            results.append(FileResult(path=change.path, problem=error.message))
    return results


def build_changes(patch: Patch, release: str, read: Callable[[str], bytes | None]) -> list[PatchChange]:
    """Every file of the patch with its bytes before and after; `read` gives a file of the install.

    Raises ConfigError where bytes before or after are not the pinned ones, or do not compile.
    """
    changes = [build_change(patch, change, read(change.path)) for change in for_release(patch, release).files]
    for change in changes:
        compile_python(patch, change)
    return changes


def build_change(patch: Patch, change: FileChange, before: bytes | None) -> PatchChange:
    place = f"{patch.folder / 'patch.yaml'}:1: {change.path}"
    if sha256(before) != change.before_sha256:
        raise ConfigError(
            f"{place}: before the patch it is {sha256(before) or 'absent'}, "
            f"but the patch is pinned to {change.before}"
        )
    after = bytes_after(patch, change, before)
    if sha256(after) != change.after_sha256:
        raise ConfigError(
            f"{place}: the patch makes {sha256(after) or 'no file'}, but it says {change.after}"
        )
    return PatchChange(path=change.path, before=before, after=after)


def bytes_after(patch: Patch, change: FileChange, before: bytes | None) -> bytes | None:
    if change.added is not None:
        return (patch.folder / change.added).read_bytes()
    diff = patch.folder / str(change.diff)
    try:
        return apply_diff(before, diff.read_bytes(), change.path)
    except DiffError as error:
        raise ConfigError(f"{diff}:{error.line}: {error.message}") from None


def compile_python(patch: Patch, change: PatchChange) -> None:
    """In memory, with this interpreter: SGLang's oldest supported Python reads what 3.11 reads here."""
    if change.after is None or not change.path.endswith(".py"):
        return
    try:
        compile(change.after, change.path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise ConfigError(f"{patch.folder / 'patch.yaml'}:1: {change.path}, line {line}: {error}") from None


def stack_changes(
    patches: list[tuple[Patch, str]], files: Mapping[str, bytes | None]
) -> dict[str, PatchChange]:
    """Several patches one after another: the first's result is what the next is pinned to. By path."""
    now = dict(files)
    first: dict[str, bytes | None] = {}
    for patch, release in patches:
        for change in build_changes(patch, release, now.get):
            first.setdefault(change.path, change.before)
            now[change.path] = change.after
    return {path: PatchChange(path=path, before=before, after=now[path]) for path, before in first.items()}
