"""The lab that tests share: one real SGLang server on the CPU behind a real sshd, for the whole run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from specops.lab import lab as labs
from specops.lab.lab import LabState
from tests.pristine import renew

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specops" / "test-lab"


@pytest.fixture(scope="session")
def session_lab() -> Iterator[LabState]:
    """In a home of its own below the user's cache: what is installed there is found again by its content."""
    saved = os.environ.get("SPECOPS_LAB_HOME")
    os.environ["SPECOPS_LAB_HOME"] = str(CACHE)
    try:
        made = labs.up(serve=False)
        labs.stop_serving(made)  # a run that was killed may have left its server, and its patches
        shutil.rmtree(made.state_dir, ignore_errors=True)
        renew(made)
        labs.start_serving(made)
        yield made
    finally:
        labs.down()
        if saved is None:
            del os.environ["SPECOPS_LAB_HOME"]
        else:
            os.environ["SPECOPS_LAB_HOME"] = saved


@pytest.fixture
def lab(session_lab: LabState) -> LabState:
    """The lab as `specops lab up` leaves it: its own server, and nothing that specops remembers."""
    if Path(session_lab.state_dir).exists():
        labs.stop_serving(session_lab)
        renew(session_lab)  # a deploy that a test let stand, or that was cut short
        shutil.rmtree(session_lab.state_dir)
        labs.start_serving(session_lab)
    return session_lab
