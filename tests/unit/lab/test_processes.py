"""`down` finds what the lab started, also where it hides what it carries."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specops.lab import processes, ssh
from specops.lab.state import COOKIE


def test_sshd_and_an_open_session_are_found_and_stopped(tmp_path: Path) -> None:
    """sshd writes its title over its environment, so the cookie alone does not find it."""
    port = processes.free_port()
    keys = ssh.make_keys(tmp_path / "ssh", port)
    assert ssh.start_ssh(tmp_path / "ssh", tmp_path, keys, port) == "openssh"
    client = open_session(keys, port)
    try:
        assert len(processes.carrying(tmp_path)) >= 3
        assert processes.stop_carrying(tmp_path) == []
        assert ssh.banner(port) == ""
        assert processes.carrying(tmp_path) == []
    finally:
        client.kill()
        client.communicate()


def open_session(keys: ssh.Keys, port: int) -> subprocess.Popen[str]:
    argv = [
        shutil.which("ssh") or "ssh", "-F", "none", "-i", str(keys.user), "-p", str(port),
        "-o", f"UserKnownHostsFile={keys.known_hosts}", "-o", "BatchMode=yes", "127.0.0.1",
        "echo ready; sleep 300",
    ]  # fmt: skip
    client = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert client.stdout is not None
    assert client.stdout.readline() == "ready\n"
    return client


def test_a_pid_that_is_somebody_elses_by_now_is_left_alone(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    try:
        ticks = processes.start_ticks(other.pid)
        (tmp_path / processes.RECORD).write_text(f"[{other.pid}, {ticks - 1}]\n[{2**22 + 1}, 5]\n")
        assert processes.stop_carrying(tmp_path) == []
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_server_that_a_deploy_started_is_found_by_what_it_carries(tmp_path: Path) -> None:
    env = {**os.environ, COOKIE: str(tmp_path)}
    server = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], env=env)
    try:
        wait_for(lambda: processes.carrying(tmp_path) == [server.pid])
        assert processes.carrying(tmp_path / "another") == []
        assert processes.stop_carrying(tmp_path) == []
    finally:
        server.kill()
        server.wait()


def wait_for(condition: object, within_s: float = 10) -> None:
    assert callable(condition)
    end = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end:
            pytest.fail("did not come true")
        time.sleep(0.05)
