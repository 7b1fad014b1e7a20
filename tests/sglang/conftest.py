"""Which files belong to the default run."""

from __future__ import annotations

import os

# A gated server of its own, three minutes: `make smoke-url` asks for it.
collect_ignore = [] if os.environ.get("SPECOPS_SMOKE_URL") else ["test_smoke_url.py"]
