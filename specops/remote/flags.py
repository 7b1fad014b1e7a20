"""Names of server arguments by release, from data/flags.json: for hints, never for guesses."""

from __future__ import annotations

import json
import pkgutil
import re


def parse_release(text: str) -> tuple[int, ...]:
    """`0.5.12.post1` -> (0, 5, 12, 1); `0.5.12` -> (0, 5, 12, 0)."""
    numbers = [int(number) for number in re.findall(r"\d+", text.partition("+")[0])[:4]]
    return tuple(numbers + [0] * (4 - len(numbers)))


def name_hints(release: str) -> dict[str, str]:
    """Flag that this release does not have -> what it has instead, or since which release it exists."""
    raw = pkgutil.get_data(__package__ or "", "data/flags.json")
    hints: dict[str, str] = {}
    here = parse_release(release)
    for names in json.loads(raw or b"{}").get("flags", {}).values():
        known = [name for name in names if parse_release(name["since"]) <= here]
        right = known[-1]["flag"] if known else None
        for name in names:
            if name["flag"] != right:
                hints[name["flag"]] = (
                    f"it is {right} in {release}" if right else f"it exists since {name['since']}"
                )
    return hints
