"""Which patches an install gets, and whether this host has proven them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specops.config.patch import Patch, find_patch, gate_patches

if TYPE_CHECKING:
    from specops.config.playbook import CheckId
    from specops.connect.base import Connector
    from specops.engine.place import Place
    from specops.facts.install import Install
    from specops.facts.state import Current

WHOLE_PROOF: tuple[CheckId, ...] = ("S0", "S1", "S2", "S3", "S4", "S5", "S6", "S7")


def gate_candidates(
    available: Mapping[str, Patch], install: Install, current: Current | None, asked: Sequence[str]
) -> list[str]:
    """Patches that bring a gate to this install, best first: asked for by name, then pinned to its bytes."""
    ids = gate_patches(available, install.version)
    named = [name for name in asked if name in ids]
    fitting = [name for name in ids if fits(available[name], install, current)]
    return list(dict.fromkeys([*named, *fitting, *ids]))


def fits(patch: Patch, install: Install, current: Current | None) -> bool:
    """Whether the install has the bytes from before or after the patch, or had the former before specops."""
    content = patch.releases.get(install.version)
    if content is None:
        return False
    was = {file.path: file.before for file in current.installed} if current else {}
    for file in content.files:
        found = install.files.get(file.path)
        first = was.get(f"{install.root}/{file.path}", found)
        if found not in (file.before_sha256, file.after_sha256) and first != file.before_sha256:
            return False
    return True


def choose_patches(available: Mapping[str, Patch], ids: Sequence[str]) -> tuple[Patch, ...]:
    return tuple(find_patch(available, name) for name in dict.fromkeys(ids))


def find_unproven(patches: Sequence[Patch], place: Place, connector: Connector) -> tuple[Patch, ...]:
    """Rebased patches that no deploy on this instance has proven in full. Asks the host if there is one."""
    rebased = [patch for patch in patches if patch.origin]
    if not rebased:
        return ()
    told = connector.call("history", {"instance": place.reference(), "limit": None})
    deploys = told.get("deploys") if isinstance(told, dict) else None
    return tuple(p for p in rebased if not any(_proves(each, p.id) for each in deploys or ()))


def _proves(deploy: Mapping[str, Any], patch: str) -> bool:
    """A rebased patch's id holds a hash of its bytes, so that it cannot be another's proof."""
    summary = deploy.get("summary") or {}
    verdicts = {check.get("id"): check.get("verdict") for check in deploy.get("checks") or ()}
    passed = all(verdicts.get(check) == "pass" for check in WHOLE_PROOF)
    return deploy.get("how") == "deployed" and patch in (summary.get("patches") or ()) and passed
