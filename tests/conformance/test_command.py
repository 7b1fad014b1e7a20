"""The command line against real SSH: what is wrong is said, with its own exit code."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from specops.cli import main
from tests.conformance.sshd import Sshd, make_key

pytestmark = pytest.mark.sshd
CLOSED_PORT = 31402


def write_inventory(folder: Path, sshd: Sshd, **changes: object) -> str:
    host = {
        "address": "127.0.0.1",
        "port": sshd.port,
        "user": sshd.user,
        "identity_file": str(sshd.identity),
        "known_hosts": str(sshd.known_hosts),
        "python": sys.executable,
        "state": str(folder / "state"),
        "instances": [{"name": "one", "port": 31405}],
        **changes,
    }
    path = folder / "inventory.yaml"
    path.write_text(json.dumps({"hosts": {"box": host}}))
    return str(path)


def test_a_host_that_is_not_there(sshd: Sshd, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inventory = write_inventory(tmp_path, sshd, port=CLOSED_PORT)
    assert main.run(["history", "--inventory", inventory]) == 12
    said = capsys.readouterr().err
    assert f"127.0.0.1:{CLOSED_PORT}" in said
    assert "cannot be reached: Connection refused" in said
    assert "nothing was changed" in said


def test_a_name_that_is_not_there(sshd: Sshd, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inventory = write_inventory(tmp_path, sshd)
    assert main.run(["history", "--inventory", inventory, "--host", "bax"]) == 2
    assert "box" in capsys.readouterr().err


def test_a_key_that_is_not_ours(sshd: Sshd, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inventory = write_inventory(tmp_path, sshd, identity_file=str(make_key(tmp_path / "stranger")))
    assert main.run(["history", "--inventory", inventory]) == 12
    assert "accepts none of our keys" in capsys.readouterr().err


def test_a_host_key_that_has_changed(sshd: Sshd, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(sshd.known_line(key=make_key(tmp_path / "other")))
    inventory = write_inventory(tmp_path, sshd, known_hosts=str(known))
    assert main.run(["history", "--inventory", inventory, "--accept-new-host-key"]) == 12
    said = capsys.readouterr().err
    assert said.count("SHA256:") == 2
    assert sshd.fingerprint() in said


def test_an_unknown_key_is_accepted_when_told_so(
    sshd: Sshd, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = tmp_path / "known_hosts"
    inventory = write_inventory(tmp_path, sshd, known_hosts=str(known))
    assert main.run(["history", "--inventory", inventory, "--json"]) == 12
    line = json.loads(capsys.readouterr().out)
    assert line["error"] == "HostUnreachable"
    assert sshd.fingerprint() in line["message"]
    # The scripted agent of conftest answers anything.
    assert main.run(["history", "--inventory", inventory, "--accept-new-host-key", "--json"]) == 0
    assert known.read_text() == sshd.known_line()
