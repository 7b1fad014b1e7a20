"""A model folder on the host: there or not, complete or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    path: str
    exists: bool
    complete: bool
    detail: str
    """What is missing, in words; empty when complete."""
    bytes: int = 0
    """Of weights."""
    files: int = 0
    tokenizer: bool = True
    folder: str = ""
    """Where it lies: a snapshot in the cache for one of the hub; empty where it is not there."""
    cache: str = ""
    """Of the hub, as the launch will have it."""
    offline: bool = False
    """The launch's environment says that nothing is fetched (HF_HUB_OFFLINE)."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """architectures, hidden_size, vocab_size, draft_vocab_size, target_hidden_size, num_hidden_layers."""

    @property
    def of_hub(self) -> bool:
        """Named as the hub does (`org/name`), not as a folder: what is not in the cache can be fetched."""
        return not self.path.startswith(("/", "~"))


def parse_models(raw: dict[str, Any] | None) -> dict[str, Model]:
    return {
        path: Model(
            path=path,
            exists=bool(model.get("exists")),
            complete=bool(model.get("complete")),
            detail=_words(model.get("detail")),
            bytes=int(model.get("bytes") or 0),
            files=int(model.get("files") or 0),
            tokenizer=bool(model.get("tokenizer", True)),
            folder=str(model.get("folder") or ""),
            cache=str(model.get("cache") or ""),
            offline=bool(model.get("offline")),
            config=dict(model.get("config") or {}),
        )
        for path, model in (raw or {}).items()
    }


def _words(detail: Any) -> str:
    if isinstance(detail, list):
        return "; ".join(str(part) for part in detail)
    return str(detail or "")
