"""The table of operations that a plan can name."""

from __future__ import annotations

import sys
import traceback
from typing import Any

from . import files
from .context import Context, Op, OpFailed

Json = Any


def find(name: str) -> Op:
    """Raises `unknown_op`. The server's operations are loaded when the first of them is asked for."""
    op = files.OPS.get(name)
    if op is None and name.startswith("server."):
        from . import server_ops

        op = server_ops.OPS.get(name)
    if op is None and name.startswith("copy."):
        from . import activation

        op = activation.OPS.get(name)
    if op is None and name == "smoke":
        from . import smoke_op

        op = smoke_op.OPS.get(name)
    if op is None:
        raise OpFailed(
            "unknown_op",
            f"this agent has no operation {name!r}",
            next_command="use the specops that made the plan",
        )
    return op


def call(ctx: Context, op: str, args: dict[str, Json]) -> dict[str, Json]:
    """Run one operation; whatever it raises becomes an OpFailed."""
    try:
        return find(op)(ctx, args) or {}
    except OpFailed:
        raise
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        raise OpFailed(
            "internal",
            f"{op} failed in a way it does not know: {type(error).__name__}: {error}",
            detail=traceback.format_exc(),
            next_command="specops evidence, and report it",
        ) from error
