"""Who else uses the install that is to be changed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from specops.remote import procs
from specops.remote.users import find_users

SLEEP = "import time; time.sleep(600)"
WORDS = ("-c", SLEEP, "sglang.launch_server", "--api-key", "sk-planted", "--port")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An install in a virtual environment of its own."""
    package = tmp_path / "venv/lib/python3.11/site-packages/sglang"
    package.mkdir(parents=True)
    (tmp_path / "venv/bin").mkdir()
    (tmp_path / "venv/bin/python").symlink_to(os.path.realpath(sys.executable))
    return package


@pytest.fixture
def three(root: Path) -> Iterator[list[int]]:
    """A server of the install, one that finds it by its module path, and one of another install."""
    own = str(root.parents[3] / "bin/python")
    path = {"PYTHONPATH": str(root.parent)}
    started = [
        subprocess.Popen([python, "-S", *WORDS, port], env=env)
        for python, port, env in ((own, "31", {}), (sys.executable, "32", path), (sys.executable, "33", {}))
    ]
    yield [each.pid for each in started]
    for each in started:
        each.kill()
        each.wait()


def test_servers_of_the_install_are_found(root: Path, three: list[int]) -> None:
    found = find_users(procs.scan_processes(), os.path.realpath(root), set())
    assert [(user["pid"], user["port"]) for user in found] == [(three[0], "31"), (three[1], "32")]
    assert "sk-planted" not in str(found)
    assert [u["pid"] for u in find_users(procs.scan_processes(), str(root), {three[0]})] == [three[1]]
