"""Proven: was a closed step of a gate's patch ever executed on the worker that this launch gets?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from specops.config.proof import WORDS, best_proof, load_proofs
from specops.errors import Refused
from specops.steps.gate import parse_release

if TYPE_CHECKING:
    from specops.config.patch import Patch
    from specops.config.playbook import Playbook

V2_BY_DEFAULT = (0, 5, 11, 0)
V2_ONLY = (0, 5, 13, 0)
V2_TAKES_NO_TREES = (0, 5, 7, 0)
"""Until 0.5.13, that is; before, nobody checked."""
ASKS_FOR_V2 = "SGLANG_ENABLE_SPEC_V2"


def require_tried(
    patches: Sequence[Patch], release: str, playbook: Playbook, env: Mapping[str, str], *, accepted: bool
) -> None:
    """Raises Refused where a gate's patch only applies: no closed step of it was ever executed.

    A rebased patch is proven by deploys on its host instead (patches.py).
    """
    if accepted or playbook.draft is None:
        return
    topk = playbook.draft.topk
    worker = worker_of(release, topk, playbook.server.args, {**env, **playbook.env.set})
    for patch in patches:
        if not patch.gate or patch.origin or release not in patch.releases:
            continue
        proof = best_proof(load_proofs(patch.folder), patch, release, worker, topk)
        if proof is None or proof.level == "applies only":
            why = proof.reason if proof and proof.reason else "no proof run has executed a closed step of it"
            raise Refused(
                f"patch {patch.id} {WORDS['applies only']} on SGLang {release} with "
                f"{worker_name(worker)} and topk {topk}: {why}",
                host_state="nothing was changed",
                next_command="--accept-unproven deploys it, kept only if S0 to S7 all pass",
            )


def faster_than_native(patches: Sequence[Patch], release: str, topk: int) -> tuple[str, float] | None:
    """The first of these patches that was measured to beat the release's own gate, and by how much."""
    for patch in patches:
        proof = best_proof(load_proofs(patch.folder), patch, release, "v2", topk)
        if proof is not None and proof.topk == topk and proof.to_native > 1:
            return patch.id, proof.to_native
    return None


def worker_of(release: str, topk: int, args: Mapping[str, object], env: Mapping[str, str]) -> str:
    """`v1` (EAGLEWorker) or `v2` (EAGLEWorkerV2): what SGLang chooses for these arguments."""
    numbers = parse_release(release)
    if numbers >= V2_ONLY:
        return "v2"
    word = env.get(ASKS_FOR_V2, "1" if numbers >= V2_BY_DEFAULT else "0").lower()
    wanted = word in ("1", "true", "yes", "y", "t")
    trees = topk > 1 and numbers >= V2_TAKES_NO_TREES
    return "v2" if wanted and not trees and not args.get("disable-overlap-schedule") else "v1"


def worker_name(worker: str) -> str:
    return {"v1": "EAGLEWorker", "v2": "EAGLEWorkerV2"}[worker]
