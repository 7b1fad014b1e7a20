"""One request of the controller, as a verb is given it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .wire import Answers

Json = Any


@dataclass(frozen=True)
class Request:
    params: dict[str, Json]
    answers: Answers
    zip_bytes: bytes
    """The agent's own zip, to be kept where a deploy may need it."""
