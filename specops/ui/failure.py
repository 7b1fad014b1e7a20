"""Where the traceback of an internal error is kept."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

KEEP = 20


def keep_traceback(text: str, argv: list[str], *, show: bool) -> str:
    """Write it below the user's state folder and return the path; words, if even that fails."""
    if show:
        sys.stderr.write(text)
    base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    folder = base / "specops" / "failures"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
        path.write_text(f"specops {' '.join(argv)}\n\n{text}")
        for old in sorted(folder.glob("*.txt"))[:-KEEP]:
            old.unlink(missing_ok=True)
    except OSError as error:
        return f"no file ({error}); SPECOPS_DEBUG=1 shows it"
    return str(path)
