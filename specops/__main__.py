"""`python -m specops`."""

from __future__ import annotations

from specops.cli.main import main

main()
