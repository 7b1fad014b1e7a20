"""A model folder on the host: there or not, complete or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    path: str
    exists: bool
    complete: bool
    detail: str
    """What is missing, in words; empty when complete."""


def parse_models(raw: dict[str, Any] | None) -> dict[str, Model]:
    return {
        path: Model(
            path=path,
            exists=bool(model.get("exists")),
            complete=bool(model.get("complete")),
            detail=_words(model.get("detail")),
        )
        for path, model in (raw or {}).items()
    }


def _words(detail: Any) -> str:
    if isinstance(detail, list):
        return "; ".join(str(part) for part in detail)
    return str(detail or "")
