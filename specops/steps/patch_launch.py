"""What patches want of a launch: their flags and variables filled in, and the launches that they refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from specops.config.patch import PLACEHOLDER, Patch, Refusal
from specops.config.schema import Flag
from specops.errors import Refused

if TYPE_CHECKING:
    from specops.config.playbook import Playbook

UNCHANGED = "nothing was changed"
V = TypeVar("V", bound=Flag)


def patch_flags(patches: Sequence[Patch], playbook: Playbook) -> dict[str, Flag]:
    """Launch flags of all patches. Raises Refused where the playbook or another patch gives one otherwise."""
    merged = _merge(patches, playbook, lambda patch: patch.flags)
    for flag, (owner, value) in merged.items():
        given = playbook.server.args.get(flag, value)
        if str(given) != str(value):
            raise Refused(
                f"server.args gives {flag} {given}, but patch {owner} sets it to {value}",
                host_state=UNCHANGED,
                next_command=f"leave {flag} out of server.args (gate.threshold and gate.hysteresis_steps set "
                "the gate's flags)",
            )
    return {flag: value for flag, (_, value) in merged.items()}


def patch_env(patches: Sequence[Patch], playbook: Playbook, place_env: Mapping[str, str]) -> dict[str, str]:
    """Variables of all patches. Raises Refused where inventory or playbook contradict one."""
    merged = _merge(patches, playbook, lambda patch: patch.env)
    for name, (owner, value) in merged.items():
        given = {name: value, **place_env, **playbook.env.set}[name]
        if given == value and name not in playbook.env.unset:
            continue
        what = "env.unset takes it away" if name in playbook.env.unset else f"this instance's is {given}"
        raise Refused(
            f"patch {owner} needs {name}={value} in the server's environment, but {what}",
            host_state=UNCHANGED,
            next_command=f"leave {name} out of `env` in the playbook and the inventory",
        )
    return {name: value for name, (_, value) in merged.items()}


def find_refusal(patches: Sequence[Patch], argv: Sequence[str]) -> tuple[Patch, Refusal] | None:
    """The first flag of a launch command that one of the patches does not work with."""
    given = read_flags(argv)
    for patch in patches:
        for refusal in patch.refuses:
            if refusal.flag in given and _same(refusal.value, given[refusal.flag]):
                return patch, refusal
    return None


def read_flags(argv: Sequence[str]) -> dict[str, str]:
    """By name without dashes: `--flag value`, `--flag=value` and bare `--flag` (empty). `_` counts as `-`."""
    found: dict[str, str] = {}
    name = ""
    for word in argv:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            name = name.replace("_", "-")
            found[name] = value
        elif name:
            found[name] = f"{found[name]} {word}".strip()
    return found


def _same(refused: Flag | None, given: str) -> bool:
    if refused is None:
        return True
    words = refused if isinstance(refused, tuple) else (refused,)
    return given == " ".join(str(word) for word in words) or (
        refused is True and given.lower() in ("", "true")
    )


def _merge(
    patches: Sequence[Patch], playbook: Playbook, pick: Callable[[Patch], Mapping[str, V]]
) -> dict[str, tuple[str, V | str]]:
    """By name: (id of the patch, filled-in value). Raises Refused where two patches want different values."""
    merged: dict[str, tuple[str, V | str]] = {}
    for patch in patches:
        for name, raw in pick(patch).items():
            value = _fill(raw, playbook) if isinstance(raw, str) else raw
            owner, other = merged.setdefault(name, (patch.id, value))
            if other != value:
                raise Refused(
                    f"patch {owner} sets {name} to {other}, patch {patch.id} to {value}",
                    host_state=UNCHANGED,
                    next_command="leave one of them out of `patches:`",
                )
    return merged


def _fill(text: str, playbook: Playbook) -> str:
    gate = playbook.gate
    known = {"threshold": gate.threshold, "hysteresis_steps": gate.hysteresis_steps}
    return PLACEHOLDER.sub(lambda match: str(known[match[1]]), text)
