"""The sweep on a host: its load in a child of SGLang's environment, one event a level."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .context import OpFailed
from .load_child import Child

Json = Any
POLL_S = 0.2
LEVEL_S = 1800.0
"""Most for one level."""


def run(params: dict[str, Json], emit: Callable[[dict[str, Json]], None]) -> dict[str, Json]:
    """{levels: [level event], ended: `finished` or why not}. Finished levels outlive the server.

    `params`: `sweep` {url, levels, requests, max_tokens, prompts, api_key_env, log}, `agent_zip`,
    `python`, `secrets`.
    """
    spec = dict(params.get("sweep") or {})
    python = str(params.get("python") or (params.get("instance") or params).get("python") or "")
    if not python:
        raise OpFailed("usage", "the sweep has no `python` to run its load with")
    secrets = {str(k): str(v) for k, v in (params.get("secrets") or {}).items()}
    spec.setdefault("budget_s", LEVEL_S * max(1, len(spec.get("levels") or ())))
    child = Child("child-sweep", os.path.expanduser(python), Path(params["agent_zip"]), spec, secrets, None)
    levels: list[dict[str, Json]] = []
    try:
        while True:
            event = child.next(POLL_S)
            if event is None:
                child.require_life()
            elif event.get("event") == "result":
                return dict(event["value"])
            else:
                if event.get("event") == "level":
                    levels.append(event)
                emit(event)
    except OpFailed as error:
        if not levels:
            raise
        return {"levels": levels, "ended": error.message}
    finally:
        child.end()
