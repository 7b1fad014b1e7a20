"""Output that needs no library: what other programs read."""

from __future__ import annotations

import sys


def write_result(line: str) -> None:
    """A line that is the product of a command, for other programs: on stdout, exactly as given."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
