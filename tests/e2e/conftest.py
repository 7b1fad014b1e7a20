"""Which files belong to the default run."""

from __future__ import annotations

import os

ON_REQUEST = {
    "test_batch_gate.py": "SPECOPS_E2E_OLDER",  # a quarter of an hour: make e2e-older
    "test_sweep.py": "SPECOPS_E2E_SWEEP",  # a quarter of an hour: make e2e-sweep
    "test_zoo.py": "SPECOPS_ZOO_DEPLOYS",  # ten minutes: make zoo-deploys
    "test_two_ranks.py": "SPECOPS_E2E_TP",  # some minutes: make e2e-tp
}
collect_ignore = [name for name, asked_by in ON_REQUEST.items() if not os.environ.get(asked_by)]
