"""`python -B agent.zip child-smoke`: the spec on stdin, events on stdout, the result last."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

Json = Any


def main() -> int:
    try:
        raw = json.load(sys.stdin)
    except ValueError as error:
        return _end(
            {"verdict": "error", "checks": [], "timeline": {}, "summary": f"no JSON on stdin: {error}"}
        )
    try:
        import aiohttp  # noqa: F401
    except ImportError as error:
        return _end(
            {"verdict": "error", "checks": [], "timeline": {}, "summary": f"{sys.executable}: {error}"}
        )
    from .prompts import PROMPTS
    from .smoke.run import run_smoke
    from .smoke.spec import parse_spec

    try:
        spec = parse_spec(raw, PROMPTS)
    except (TypeError, ValueError) as error:
        return _end({"verdict": "error", "checks": [], "timeline": {}, "summary": str(error)})
    return _end(asyncio.run(run_smoke(spec, _emit)))


def _emit(event: dict[str, Json]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def _end(result: dict[str, Json]) -> int:
    _emit({"event": "result", "value": result})
    return 0
