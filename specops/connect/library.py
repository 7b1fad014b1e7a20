"""paramiko without invoke, which it would load for one word of an ssh_config that we leave to `ssh -G`.

A third of what importing it costs, and that is part of every command that needs a host.
"""

from __future__ import annotations

import sys

_before = sys.modules.get("invoke")
if _before is None:
    # None makes `import invoke` an ImportError; paramiko goes on without it.
    sys.modules["invoke"] = None  # type: ignore[assignment]
try:
    import paramiko
    import paramiko.auth_strategy
    import paramiko.ssh_exception
finally:
    if _before is None:
        del sys.modules["invoke"]

__all__ = ["paramiko"]
