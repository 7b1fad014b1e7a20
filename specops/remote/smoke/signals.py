"""Signals by release: which fields, pages and log lines there are, and what they mean (data/signals.json)."""

from __future__ import annotations

import json
import pkgutil
import re
from dataclasses import dataclass
from typing import Any

Json = Any


@dataclass(frozen=True)
class Signals:
    info_path: str
    """The page with `internal_states`."""
    live_steps: bool
    """internal_states[0].speculative_num_steps is the active tier (adaptive speculation)."""
    steps_gauge: bool
    """`sglang:spec_num_steps` is there (with --enable-metrics)."""
    verifies_while_closed: bool
    """spec_verify_ct goes on counting, one a token, while the gate is closed."""
    correct_drafts: str
    """The field of a finished request with all its accepted drafts; empty where there is none."""
    used_without_cache: bool
    """/v1/loads' num_used_tokens leaves out what only the prefix cache holds: idle, it is 0."""
    bad_lines: tuple[re.Pattern[str], ...]


def read_signals(release: str, gate: str) -> Signals:
    """The table's entries up to `release`, later over earlier ones. An unknown release has the newest."""
    raw = pkgutil.get_data((__package__ or "").rpartition(".")[0], "data/signals.json")
    if raw is None:
        raise RuntimeError("the agent was packed without data/signals.json")
    table = json.loads(raw)
    known: dict[str, Json] = {}
    wanted = release_key(release) if release else None
    for entry in table["releases"]:
        if wanted is None or release_key(entry["since"]) <= wanted:
            known.update({key: value for key, value in entry.items() if key != "since"})
    return Signals(
        info_path=known["info_path"],
        live_steps=bool(known["live_steps"]) and gate != "batch-gate",
        steps_gauge=bool(known["steps_gauge"]),
        verifies_while_closed=bool(table["gates"].get(gate, {}).get("verifies_while_closed")),
        correct_drafts=known["correct_drafts"],
        used_without_cache=bool(known.get("used_without_cache")),
        bad_lines=tuple(re.compile(pattern) for pattern in table["bad_lines"]),
    )


def release_key(release: str) -> tuple[int, ...]:
    """`0.5.12.post1` -> (0, 5, 12, 1)."""
    parts = [int(part) for part in re.findall(r"\d+", release.split("+")[0])[:4]]
    return tuple(parts + [0] * (4 - len(parts)))
