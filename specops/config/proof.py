"""How far a patch was proved, release by release: `proof.json` beside patch.yaml, written by proof runs.

A proof holds for the bytes that were run. Where a patch has changed since, it is no proof any more.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from specops.config.patch import Patch, for_release
from specops.errors import ConfigError

FILE = "proof.json"
Level = Literal["gpu", "cpu", "applies only"]
LEVELS: tuple[Level, ...] = ("gpu", "cpu", "applies only")
"""Best first: closed steps executed on a GPU, on a CPU, or nothing executed."""
WORDS: dict[Level, str] = {
    "gpu": "closed step executed on GPU",
    "cpu": "closed step executed on CPU",
    "applies only": "applies only",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """One run of one release. `worker` is v1 (EAGLEWorker) or v2; `reason` is why it proved nothing."""

    release: str
    worker: str
    topk: int
    level: Level
    bytes: str
    """`patch_bytes` of what ran."""
    date: str
    closed_steps: int = 0
    reason: str = ""
    to_native: float = 0.0
    """tok/s above the threshold, this gate's to SGLang's own, side by side on one GPU: the lowest over the
    levels. 0 where nobody measured."""


def patch_bytes(patch: Patch, release: str) -> str:
    """sha256 over every path and the hash of its patched bytes: another letter anywhere is another proof."""
    lines = sorted(f"{file.path} {file.after}\n" for file in for_release(patch, release).files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def load_proofs(folder: Path) -> tuple[Proof, ...]:
    """Empty where the patch was never proved. Raises ConfigError."""
    file = folder / FILE
    if not file.is_file():
        return ()
    try:
        return tuple(Proof(**row) for row in json.loads(file.read_text(encoding="utf-8"))["proofs"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file}:1: not a list of proofs: {error}") from None


def keep_proof(folder: Path, proof: Proof) -> None:
    """In place of the same release's, worker's and topk's earlier one on such a machine (a GPU, or none)."""
    kept = [old for old in load_proofs(folder) if _case(old) != _case(proof)]
    rows = sorted([*kept, proof], key=lambda one: (_natural(one.release), one.worker, one.topk, one.level))
    text = json.dumps({"proofs": [_written(row) for row in rows]}, indent=1)
    (folder / FILE).write_text(text + "\n", encoding="utf-8")


def best_proof(proofs: Iterable[Proof], patch: Patch, release: str, worker: str, topk: int) -> Proof | None:
    """The furthest proof of this worker on today's bytes; a tree (topk above 1) holds a single branch too."""
    now = patch_bytes(patch, release)
    held = [
        proof
        for proof in proofs
        if (proof.release, proof.worker, proof.bytes) == (release, worker, now)
        and (proof.topk == topk or proof.topk > 1)
    ]
    return min(held, key=lambda proof: (LEVELS.index(proof.level), proof.topk != topk), default=None)


def _written(proof: Proof) -> dict[str, Any]:
    """`to_native` only where it was measured: most releases have no gate of their own."""
    return {name: value for name, value in asdict(proof).items() if name != "to_native" or value}


def _case(proof: Proof) -> tuple[Any, ...]:
    return proof.release, proof.worker, proof.topk, proof.level == "gpu"


def _natural(release: str) -> list[int]:
    numbers = [int(part.removeprefix("post")) for part in release.split(".")]
    return [*numbers, *[0] * (4 - len(numbers))]
