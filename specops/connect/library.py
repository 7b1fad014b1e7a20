"""paramiko without two things that it loads and we do not need: half of what importing it costs, and that is
part of every command that needs a host.

invoke is for one word of an ssh_config, which we leave to `ssh -G`. importlib.metadata (with all of `email`)
is for its own version, which the name of its folder tells.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

METADATA = "importlib.metadata"


def read_version() -> str | None:
    """Of the installed paramiko, without its metadata being read; None where its folder tells nothing."""
    spec = find_spec("paramiko")
    if spec is None or spec.origin is None:
        return None
    folders = list(Path(spec.origin).parent.parent.glob("paramiko-*.dist-info"))
    return folders[0].name.removeprefix("paramiko-").removesuffix(".dist-info") if len(folders) == 1 else None


@contextmanager
def spared() -> Iterator[None]:
    """While paramiko is imported. What is loaded already stays what it is."""
    version = read_version()
    placed: list[str] = []
    if "invoke" not in sys.modules:
        # None makes `import invoke` an ImportError; paramiko goes on without it.
        sys.modules["invoke"] = None  # type: ignore[assignment]
        placed.append("invoke")
    if METADATA not in sys.modules and version is not None:
        said = ModuleType(METADATA)
        said.version = lambda name: version  # type: ignore[attr-defined]
        sys.modules[METADATA] = said
        placed.append(METADATA)
    try:
        yield
    finally:
        for name in placed:
            del sys.modules[name]
        if METADATA in placed and hasattr(importlib, "metadata"):
            del importlib.metadata


with spared():
    import paramiko
    import paramiko.auth_strategy
    import paramiko.ssh_exception

__all__ = ["paramiko"]
