"""Four verdicts, each with what it rests on. No data is never a pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Json = Any
PASS, FAIL, INCONCLUSIVE, ERROR = "pass", "fail", "inconclusive", "error"


@dataclass(frozen=True)
class Verdict:
    verdict: str
    summary: str
    evidence: dict[str, Json] = field(default_factory=dict)


def passed(summary: str, **evidence: Json) -> Verdict:
    return Verdict(PASS, summary, evidence)


def failed(summary: str, **evidence: Json) -> Verdict:
    return Verdict(FAIL, summary, evidence)


def inconclusive(summary: str, **evidence: Json) -> Verdict:
    return Verdict(INCONCLUSIVE, summary, evidence)


def error(summary: str, **evidence: Json) -> Verdict:
    return Verdict(ERROR, summary, evidence)


def worst(verdicts: list[str]) -> str:
    """Of a whole run: a fail beats an error, which beats what is open. Without any there is no pass."""
    for name in (FAIL, ERROR, INCONCLUSIVE):
        if name in verdicts:
            return name
    return PASS if verdicts else INCONCLUSIVE


class Judged(Exception):
    """Ends a check from deep inside its load: a hang, a failed request, foreign traffic."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.summary)
        self.verdict = verdict
