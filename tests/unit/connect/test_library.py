"""What is kept from paramiko while it is imported is there for everybody else afterwards."""

from __future__ import annotations

import json
import subprocess
import sys

CODE = """
import json, sys
from specops.connect.library import paramiko
spared = [name for name in ("invoke", "importlib.metadata", "email.message") if name in sys.modules]
from importlib import metadata
import invoke
real = metadata.version("paramiko")
print(json.dumps([spared, paramiko.__version__ == real, hasattr(metadata, "entry_points"), bool(invoke)]))
"""


def test_paramiko_comes_with_its_version_and_without_what_it_does_not_need() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[], True, True, True]
