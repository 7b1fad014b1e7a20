"""Signals by release: which fields, pages and log lines there are, and what they mean (data/signals.json)."""

from __future__ import annotations

import json
import pkgutil
import re
from dataclasses import dataclass
from typing import Any

Json = Any


INFO_PAGES = ("/server_info", "/get_server_info")
"""Newest first; where the release is not known yet, both are asked."""


@dataclass(frozen=True)
class Signals:
    info_path: str
    """The page with `internal_states`."""
    live_steps: bool
    """internal_states[0].speculative_num_steps is the active tier (adaptive speculation)."""
    verifies_while_closed: bool
    """spec_verify_ct goes on counting, one a token, while the gate is closed."""
    correct_drafts: str
    """The field of a finished request with all its accepted drafts; empty where there is none."""
    used_without_cache: bool
    """/v1/loads' num_used_tokens leaves out what only the prefix cache holds: idle, it is 0."""
    bad_lines: tuple[re.Pattern[str], ...]


def read_table() -> dict[str, Json]:
    raw = pkgutil.get_data((__package__ or "").rpartition(".")[0], "data/signals.json")
    if raw is None:
        raise RuntimeError("the agent was packed without data/signals.json")
    return dict(json.loads(raw))


def read_signals(release: str, gate: str) -> Signals:
    """What `release` has, by the table. An unknown release has what the newest one has."""
    table = read_table()
    roles = {
        str(entry["role"]): str(entry.get("name", entry["role"]))
        for entry in (*table["signals"], *table["behaviours"])
        if "role" in entry and exists(entry, release)
    }
    return Signals(
        info_path=roles["info_path"],
        live_steps="live_steps" in roles and gate != "batch-gate",
        verifies_while_closed=bool(table["gates"].get(gate, {}).get("verifies_while_closed")),
        correct_drafts=roles.get("correct_drafts", ""),
        used_without_cache="used_without_cache" in roles,
        bad_lines=tuple(re.compile(pattern) for pattern in table["bad_lines"]),
    )


def exists(entry: dict[str, Json], release: str) -> bool:
    """Whether the table's entry holds for the release; without one, for the newest."""
    if not release:
        return "until" not in entry
    wanted = release_key(release)
    until = entry.get("until")
    return release_key(entry["since"]) <= wanted and (until is None or wanted <= release_key(until))


def release_key(release: str) -> tuple[int, ...]:
    """`0.5.12.post1` -> (0, 5, 12, 1)."""
    parts = [int(part) for part in re.findall(r"\d+", release.split("+")[0])[:4]]
    return tuple(parts + [0] * (4 - len(parts)))
