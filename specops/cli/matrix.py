"""`patch verify --all`: a patch against the wheels of every release, with how far each was proved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from specops.cli.reach import speaking

if TYPE_CHECKING:
    from specops.lab.matrix import Cell, Checked

FAILED = 16


def verify_all(
    patch_id: str, *, folders: Sequence[str] | None, releases: Sequence[str] | None, as_json: bool
) -> int:
    """Prints the matrix as it grows. 16 where a release does not take the patch or does not import it."""
    with speaking(as_json) as output:
        from specops.config.patch import find_patch, for_release, load_patches
        from specops.config.proof import load_proofs
        from specops.config.shipped import shipped
        from specops.lab.matrix import build_matrix
        from specops.lab.wheels import default_home

        known = load_patches(shipped("patches"), *(Path(folder).expanduser() for folder in folders or ()))
        patch = find_patch(known, patch_id)
        chosen = list(releases or patch.releases)
        for release in chosen:
            for_release(patch, release)

        def told(release: str, checked: Checked) -> None:
            output.note(f"SGLang {release}: {words(checked)}")

        cells = build_matrix(patch, load_proofs(patch.folder), chosen, default_home(), told)
        good = all(cell.applies and "no" not in (cell.imports, cell.flags) for cell in cells)
        output.show(
            "matrix",
            {
                "patch": patch.id,
                "ok": good,
                "proofs": counts(cells),
                "rows": [asdict(each) for each in cells],
            },
        )
        return 0 if good else FAILED


def words(checked: Checked) -> str:
    if checked.problem:
        return checked.problem
    if checked.imports == "yes":
        return "applies, imports, takes its flags"
    return f"applies; imports and flags: {checked.imports}"


def counts(cells: Sequence[Cell]) -> dict[str, int]:
    """How many lines of the matrix have each level of proof."""
    return dict(Counter(cell.proof for cell in cells))
