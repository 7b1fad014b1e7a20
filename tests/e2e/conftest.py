"""Which files belong to the default run."""

from __future__ import annotations

import os

# Several servers of older releases, a quarter of an hour: `make e2e-older` asks for them.
collect_ignore = [] if os.environ.get("SPECOPS_E2E_OLDER") else ["test_batch_gate.py"]
