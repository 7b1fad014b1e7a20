"""Gate: which one a release gets, what it needs on the command line, and its file.

The native gate (SGLang >= 0.5.14, topk 1) is SGLang's adaptive speculation with two tiers: n draft steps
from a running batch of 1 on, none from T+1 on. It routes by the padded graph size, so it is exact only
where T is a captured size.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from specops.errors import Refused

GateKind = Literal["native", "batch-gate", "none"]
NATIVE_SINCE = (0, 5, 14, 0)
BATCH_GATE = "batch-gate"
RELEASE = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?(?:\.?post(?P<post>\d+))?(?P<early>\.?(?:dev|rc|a|b)\d*)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    kind: GateKind
    why: str
    """Why this gate and no other, for the plan."""
    config: bytes | None = None
    """The native gate's file."""
    patch: str | None = None
    """Id of the patch that brings the gate."""


def parse_release(version: str) -> tuple[int, int, int, int]:
    """`0.5.12.post1` -> (0, 5, 12, 1); a suffix after + is a build of the same release.

    What leads up to a release (`0.5.13.dev7`, `0.5.13rc1`) is before it: (0, 5, 13, -1).
    """
    match = RELEASE.fullmatch(version.split("+")[0])
    if match is None:
        raise Refused(
            f"SGLang calls itself {version!r}, which is no release that specops knows how to read",
            next_command="specops facts",
        )
    last = int(match["post"] or 0) - bool(match["early"])
    return int(match[1]), int(match[2]), int(match[3] or 0), last


def choose_gate(
    wanted: str,
    *,
    host: str,
    release: str,
    topk: int,
    num_steps: int,
    threshold: int,
    gate_patches: Sequence[str],
    faster: tuple[str, float] | None = None,
) -> Gate:
    """`wanted` is the playbook's `gate.kind`; `gate_patches` are the ids of patches that bring a gate to
    this release, `faster` one of them that was measured against the native gate, and the ratio. Raises
    Refused where there is no such gate, before anything is asked of the host again.
    """
    if wanted == "none":
        return Gate(kind="none", why="the playbook asks for no gate")
    if wanted == "auto" and faster and has_native(release, topk):
        why = (
            f"patch {faster[0]}, measured on a GPU with SGLang {release}: above the threshold at least "
            f"{faster[1]:.1f} times as fast as its native gate (gate.kind: native takes that one)"
        )
        return Gate(kind="batch-gate", why=why, patch=faster[0])
    if wanted in ("auto", "native") and has_native(release, topk):
        why = f"SGLang {release} has a native gate (zero-step tier, since 0.5.14) and topk is 1"
        return Gate(kind="native", why=why, config=native_config(num_steps, threshold))
    if wanted == "native":
        raise Refused(
            f"gate: native needs SGLang 0.5.14 or newer and topk 1; this is {release} with topk {topk}: "
            f"{_no_native(release, topk)}",
            host_state="nothing was changed",
            next_command="specops plan --gate auto",
        )
    if gate_patches:
        why = f"patch {gate_patches[0]}, made for SGLang {release}: {_no_native(release, topk)}"
        return Gate(kind="batch-gate", why=why, patch=gate_patches[0])
    own = topk > 1 and parse_release(release) >= NATIVE_SINCE
    raise Refused(
        f"SGLang {release} with topk {topk} has no gate that works: {_no_native(release, topk)}, "
        "and no patch of specops brings one to it",
        host_state="nothing was changed",
        next_command=f"specops patch rebase --host {host} (it carries the nearest release's patch over), or "
        + ("--set draft.topk=1 --set draft.num_draft_tokens=0 (its own gate)" if own else "--gate none"),
    )


def has_native(release: str, topk: int) -> bool:
    return parse_release(release) >= NATIVE_SINCE and topk == 1


def _no_native(release: str, topk: int) -> str:
    if parse_release(release) < NATIVE_SINCE:
        return "its own gate came with 0.5.14"
    if topk > 1:
        return f"its own gate switches itself off, silently, with topk {topk} (it takes 1)"
    return "the playbook asks for a patch and not for its own gate"


def native_config(num_steps: int, threshold: int) -> bytes:
    tiers = {"1": {"candidate_steps": [num_steps]}, str(threshold + 1): {"candidate_steps": [0]}}
    return (json.dumps(tiers) + "\n").encode()


def captured_sizes(max_batch: int) -> list[int]:
    """The batch sizes that SGLang captures by default with speculation, up to `max_batch`.

    Read in the wheels of 0.5.5 to 0.5.23: every size to 8, then steps of 2 to 32, 4 to 64, 8 to 256, 16.
    """
    sizes = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8)]
    sizes += range(272, max_batch + 1, 16)
    return sorted({size for size in sizes if size <= max_batch} | {max_batch})


def sizes_for(threshold: int, max_batch: int, asked: Sequence[int] | None) -> list[int] | None:
    """The list to pass so that T is captured, or None where the default list already holds it.

    Passing T alone would replace SGLang's list, so the whole list is passed.
    """
    if asked is not None:
        return sorted({*asked, threshold})
    default = captured_sizes(max_batch)
    return None if threshold in default else sorted({*default, threshold})
