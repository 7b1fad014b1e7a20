"""`python -B agent.zip child-sweep`: a closed loop per level, one event a level, the result last."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

Json = Any


def main() -> int:
    from .prompts import PROMPTS
    from .smoke.spec import parse_spec

    try:
        raw = json.load(sys.stdin)
        levels = [int(level) for level in raw["levels"]]
        known = {"threshold": 1, "gate": "none", "num_steps": 0, "shared": True}
        spec = parse_spec({**known, **raw, "checks": ["S0"]}, PROMPTS)
    except (KeyError, TypeError, ValueError) as error:
        return _end({"levels": [], "ended": f"not a sweep: {error}"})
    from .sweep_levels import run_levels

    started = time.monotonic()
    found, ended = asyncio.run(
        run_levels(
            spec,
            levels,
            requests=int(raw.get("requests") or 30),
            max_tokens=int(raw.get("max_tokens") or 512),
            emit=_emit,
        )
    )
    return _end({"levels": found, "ended": ended, "seconds": round(time.monotonic() - started, 1)})


def _emit(event: dict[str, Json]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def _end(result: dict[str, Json]) -> int:
    _emit({"event": "result", "value": result})
    return 0
