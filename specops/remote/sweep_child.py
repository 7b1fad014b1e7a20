"""`python -B agent.zip child-sweep`: the spec on stdin, one event a level, the result last."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from typing import Any

Json = Any
PARENT_S = 1.0
"""Between two looks at whether whoever started this still lives."""


def main() -> int:
    from .prompts import PROMPTS
    from .sweep.spec import parse_sweep

    try:
        spec = parse_sweep(json.load(sys.stdin), PROMPTS)
    except (KeyError, TypeError, ValueError) as error:
        return _end({"levels": [], "ended": f"not a sweep: {error}"})
    try:
        from .sweep.arrival import Arrivals, run
        from .sweep.run import Sweep
    except ImportError as error:
        return _end({"levels": [], "ended": f"{sys.executable}: {error}"})
    started = time.monotonic()
    arrivals = Arrivals()
    sweep = Sweep(spec, _emit, arrivals.came)
    ended = run(_until_told(sweep), arrivals)
    return _end({"levels": sweep.levels, "ended": ended, "seconds": round(time.monotonic() - started, 1)})


async def _until_told(sweep: Any) -> str:
    """TERM, Ctrl-C and its parent's death end it in order: finished levels are told, and the threshold is
    put back."""
    parent = os.getppid()
    task = asyncio.ensure_future(sweep.execute())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    while not task.done() and os.getppid() == parent:
        await asyncio.wait({task}, timeout=PARENT_S)
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    with contextlib.suppress(asyncio.CancelledError):
        return str(task.result())
    return "interrupted"


def _emit(event: dict[str, Json]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def _end(result: dict[str, Json]) -> int:
    _emit({"event": "result", "value": result})
    return 0
