"""Small things said in words, the same wherever they are said."""

from __future__ import annotations

import time
from typing import Any


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
