"""One named check of the preflight, with what it saw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GIB = 1 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    name: str
    verdict: Literal["ok", "warn", "refuse"]
    saw: str
    """Numbers first: what is there, what is needed."""
    next_command: str = ""

    def as_json(self) -> dict[str, str]:
        return {"name": self.name, "verdict": self.verdict, "saw": self.saw}


def gib(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB // 10 else f"{count / (1 << 20):.0f} MiB"
