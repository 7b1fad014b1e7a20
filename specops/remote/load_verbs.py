"""The verbs that put load on a server and hold its lock while they do: smoke and sweep.

Unlike a deploy they end with whoever asked: nobody wants the load of a command that was interrupted.
"""

from __future__ import annotations

from typing import Any

from . import changing, smoke_op, state, sweep_op
from .request import Request

Json = Any


def smoke(request: Request) -> Json:
    with changing.holding(request, "smoke"):
        return smoke_op.run_standalone(_with_zip(request), request.answers.emit, request.answers.gone)


def sweep(request: Request) -> Json:
    with changing.holding(request, "sweep"):
        return sweep_op.run(_with_zip(request), request.answers.emit, request.answers.gone)


def _with_zip(request: Request) -> dict[str, Json]:
    """The request's params, and where this agent's zip was kept: loads are its child programs."""
    kept = changing.keep_agent(state.open_instance(request.params), request.zip_bytes)
    return {**request.params, "agent_zip": str(kept)}
