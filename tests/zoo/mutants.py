"""The zoo's table and its mutants: patches that break a gate, applied to a copy of the package."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import yaml

from specops.steps.diff import apply_diff

HERE = Path(__file__).parent
CORE = ("never-closes", "lies-in-its-metric", "crash-zero-division", "garbage-above-t", "stale-draft-kv")
"""A gate that does nothing, a liar, a crash, wrong words, a silent collapse."""
HEALTHY = "healthy"
"""The id under which a server without a mutation is run beside them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutant:
    id: str
    release: str
    first: str
    """The check that has to catch it first."""
    what: str

    @property
    def folder(self) -> Path:
        return HERE / self.release / self.id


def read_mutants(release: str) -> dict[str, Mutant]:
    """Those of one release by id; raises KeyError where the table has none."""
    table = yaml.safe_load((HERE / "expected.yaml").read_text(encoding="utf-8"))
    return {
        name: Mutant(id=name, release=release, first=row["first"], what=row["what"])
        for name, row in table["releases"][release].items()
    }


def mutate(mutant: Mutant, package: Path) -> dict[str, bytes]:
    """Path below `package` (an install's `sglang` folder, patched where the gate is) -> its mutated bytes."""
    changed = {}
    for diff in sorted(mutant.folder.glob("*.diff")):
        text = diff.read_text(encoding="utf-8")
        path = text.splitlines()[0].removeprefix("--- a/")
        after = apply_diff((package / path).read_bytes(), text, path)
        if after is None:
            raise ValueError(f"{diff}: takes {path} away")
        changed[path] = after
    return changed


def breed(mutant: Mutant, package: Path, into: Path) -> Path:
    """Copy `package` below `into`, mutated; `into` then goes on the module path."""
    return overlay(package, into, mutate(mutant, package))


def overlay(package: Path, into: Path, changed: dict[str, bytes]) -> Path:
    """A copy of the package as `into/sglang`, with these files changed or added; `into`.

    Unchanged files, their bytecode too, are hard links where that is possible; changed ones are files of
    their own, so the install keeps its bytes.
    """
    copy = into / "sglang"
    shutil.copytree(package, copy, copy_function=link)
    for path, data in changed.items():
        (copy / path).unlink(missing_ok=True)
        (copy / path).write_bytes(data)
    return into


def link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def write_patch(mutant: Mutant, package: Path, into: Path) -> str:
    """The mutant as a patch that can be deployed: a folder below `into`; returns the patch's id."""
    name = f"zoo-{mutant.id}"
    folder = into / name
    folder.mkdir(parents=True)
    files = []
    for path, data in mutate(mutant, package).items():
        before = (package / path).read_bytes()
        diff = f"{Path(path).stem}.diff"
        source = next(d for d in mutant.folder.glob("*.diff") if d.read_text().startswith(f"--- a/{path}\n"))
        shutil.copyfile(source, folder / diff)
        pins = {"before": hashlib.sha256(before).hexdigest(), "after": hashlib.sha256(data).hexdigest()}
        files.append({"path": path, **pins, "diff": diff})
    modules = ["sglang." + file["path"].removesuffix(".py").replace("/", ".") for file in files]
    patch = {
        "id": name,
        "title": f"sabotaged on purpose: {mutant.what}",
        "releases": {mutant.release: {"files": files, "modules": modules}},
    }
    (folder / "patch.yaml").write_text(yaml.safe_dump(patch, sort_keys=False), encoding="utf-8")
    return name
