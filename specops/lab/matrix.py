"""A patch against the real wheels of every release that it was made for, and how far each was proved."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from specops.config.patch import Patch, for_release
from specops.config.proof import Proof, best_proof
from specops.lab import older
from specops.lab.releases import find_prepared, import_environment
from specops.lab.wheels import unpack_release
from specops.steps.patch import verify

V1_FILE = "srt/speculative/eagle_worker.py"
V2_FILE = "srt/speculative/eagle_worker_v2.py"
PATIENCE_S = 300
NOT_RUN = "not run yet"
MEMORY_BYTES = 32 << 30
Imported = str
"""`yes`, `no`, or why it was not tried."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """One release: `problem` is what is wrong, empty where nothing is."""

    applies: bool
    imports: Imported
    flags: Imported
    problem: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One line of the matrix. `proof` is `gpu`, `cpu`, `applies only` or `none`."""

    release: str
    worker: str
    topk: int
    applies: bool
    imports: Imported
    flags: Imported
    proof: str
    reason: str


def build_matrix(
    patch: Patch,
    proofs: Iterable[Proof],
    releases: Iterable[str],
    home: Path,
    told: Callable[[str, Checked], None] = lambda release, checked: None,
) -> list[Cell]:
    """Every release in turn; a wheel that is not below `home` is downloaded into it. Raises LabError."""
    held = tuple(proofs)
    cells: list[Cell] = []
    for release in releases:
        checked = check_release(patch, release, home)
        told(release, checked)
        cells += cells_of(patch, held, release, checked)
    return cells


def check_release(patch: Patch, release: str, home: Path) -> Checked:
    package = unpack_release(release, home) / "sglang"
    wrong = [f"{file.path}: {file.problem}" for file in verify(patch, release, package) if not file.ok]
    if wrong:
        return Checked(applies=False, imports="not tried", flags="not tried", problem=wrong[0])
    lab = find_prepared(release, home)
    if lab is None:
        return Checked(applies=True, imports="no environment", flags="no environment", problem="")
    report = rehearse(patch, lab)
    if report.get("ok"):
        return Checked(applies=True, imports="yes", flags="yes", problem="")
    problem = f"{report.get('stage')}: {report.get('error')}"
    at_flags = report.get("stage") == "launch arguments"
    return Checked(
        applies=True,
        imports="yes" if at_flags else "no",
        flags="no" if at_flags else "not tried",
        problem=problem,
    )


def rehearse(patch: Patch, lab: older.OlderLab) -> dict[str, object]:
    """What a deploy's rehearsal does, in the lab's environment: a patched copy, its imports, its flags."""
    program = (pkgutil.get_data("specops.remote", "data/rehearsal.py") or b"").decode()
    with tempfile.TemporaryDirectory() as folder:
        copy = older.patched_copy(lab, patch, Path(folder))
        theirs, ours = os.pipe()
        spec = {
            "report_fd": ours, "cpu_s": PATIENCE_S, "memory_bytes": MEMORY_BYTES, "folder": str(copy),
            "install": str(lab.package), "modules": list(for_release(patch, lab.release.version).modules),
            "argv": [str(lab.python), "-m", "sglang.launch_server", "--model-path", "none", *flags(patch)],
            "hints": {},
        }  # fmt: skip
        try:
            subprocess.run(
                [str(lab.python), "-c", program],
                input=json.dumps(spec).encode(),
                capture_output=True,
                env=import_environment(lab, copy),
                pass_fds=(ours,),
                timeout=PATIENCE_S,
                check=False,
            )
        finally:
            os.close(ours)
            with open(theirs, encoding="utf-8") as channel:
                lines = channel.read().splitlines()
    return dict(json.loads(lines[-1])) if lines else {"stage": "start", "error": "it said nothing"}


def flags(patch: Patch) -> list[str]:
    """The patch's launch flags with a threshold and a hysteresis filled in."""
    words: list[str] = []
    for name, value in patch.flags.items():
        text = str(value).format(threshold=5, hysteresis_steps=4)
        words += [f"--{name}"] if value is True else [f"--{name}", text]
    return words


def cells_of(patch: Patch, proofs: tuple[Proof, ...], release: str, checked: Checked) -> list[Cell]:
    """A line for each worker and kind of draft; one without a worker for a patch that brings no gate."""
    cells: list[Cell] = []
    for worker, topk in ways(patch, release):
        proof = best_proof(proofs, patch, release, worker, topk)
        level = proof.level if proof else "applies only"
        reason = checked.problem or (proof.reason if proof else NOT_RUN if worker else "")
        if proof and proof.topk != topk and not reason:
            reason = f"run with topk {proof.topk}"
        cells.append(
            Cell(
                release=release,
                worker=worker,
                topk=topk,
                applies=checked.applies,
                imports=checked.imports,
                flags=checked.flags,
                proof=level if checked.applies else "none",
                reason=reason,
            )
        )
    return cells


def ways(patch: Patch, release: str) -> list[tuple[str, int]]:
    """(worker, topk): the older worker drafts single branches and trees; the newer one trees from 0.5.13."""
    hooked = {file.path for file in for_release(patch, release).files}
    if not patch.gate:
        return [("", 0)]
    if V1_FILE in hooked:
        return [("v1", 1), ("v1", 4), ("v2", 1)]
    return [("v2", 1), ("v2", 4)] if V2_FILE in hooked else [("", 0)]
