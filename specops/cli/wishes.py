"""From arguments to what the planner is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from specops.config.patch import known_patches
from specops.config.playbook import Playbook
from specops.config.prompts import load_prompts
from specops.engine.planner import Wish, plan_levels
from specops.errors import UsageError


def make_wish(
    playbook: Playbook,
    *,
    ids: Sequence[str] | None,
    folders: Sequence[str] | None,
    sweep: bool,
    levels: str | None,
    prompts: str | None,
    accept_unproven: bool = False,
    accept_no_restore: bool = False,
    drop: bool = False,
) -> Wish:
    if ids:
        playbook = replace(playbook, patches=(*playbook.patches, *ids))
    path = prompts or playbook.smoke.prompts
    return Wish(
        playbook=playbook,
        available=known_patches(folders),
        levels=plan_levels(sweep, parse_levels(levels), playbook),
        prompts=load_prompts(Path(path).expanduser()) if path else None,
        accept_unproven=accept_unproven,
        accept_no_restore=accept_no_restore,
        drop=drop,
    )


def parse_levels(text: str | None) -> tuple[int, ...] | None:
    """`1,2,5,10`. Raises UsageError."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdigit() and int(word) > 0 for word in words):
        raise UsageError(f"--levels {text}: write numbers of concurrent requests from 1 on, such as 1,2,5,10")
    return tuple(sorted({int(word) for word in words}))
