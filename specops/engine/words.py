"""Small things said in words, the same wherever they are said."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specops.facts.server import Server


def since(unix_s: Any) -> str:
    """`2026-11-30 05:49:38 UTC (3 min ago)`; a question mark where nothing is known."""
    if not isinstance(unix_s, (int, float)):
        return "?"
    stamp = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(unix_s))
    return f"{stamp} ({duration(max(0.0, time.time() - unix_s))} ago)"


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def supervisor_notes(server: Server | None) -> tuple[str, ...]:
    boss = server.supervisor if server else None
    if boss is None:
        return ()
    name = f"{boss.kind} {boss.name}".rstrip()
    return (
        f"the server belongs to {name}: it is stopped there, and a rollback starts it there again; the new "
        f"server is started without it, so {name} still has the old command for the next boot",
    )


def describe(server: Server | None) -> str | None:
    if server is None:
        return None
    model = (
        server.reported.get("model_path") or server.reported.get("served_model_name") or "an SGLang server"
    )
    health = "" if server.healthy else ", not healthy"
    return f"pid {server.pid} ({model}{health})"
