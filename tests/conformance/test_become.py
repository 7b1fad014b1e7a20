"""The agent as another user, by sudo: its files, its processes and what it launches are that user's."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from specops.connect import exchange
from specops.connect.payload import agent_zip
from specops.connect.ssh import SshConnector
from specops.connect.ssh_settings import resolve_settings
from specops.engine.deploy import run_plan
from specops.engine.outcome import Deployed, RolledBack
from specops.engine.plan import Outage, Plan, new_id
from specops.errors import Refused
from specops.remote import procs
from specops.steps.files import FileChange, back_up, check_files, digest, stage, swap
from specops.steps.server import LaunchSpec, launch
from specops.steps.step import Command, Inert, Step
from tests.conformance.conftest import echo
from tests.conformance.sshd import Sshd
from tests.unit.remote import standin

PYTHON = "/usr/bin/python3"
SERVICE = "nobody"
PORT = 31428
OLD, NEW = b"A = 'old'\n", b"A = 'new'\n"
OpenAs = Callable[..., SshConnector]


def _allowed() -> bool:
    if shutil.which("sudo") is None or not os.access(PYTHON, os.X_OK):
        return False
    done = subprocess.run(
        ["sudo", "-n", "-u", SERVICE, PYTHON, "-c", "import sys; sys.exit(sys.version_info < (3, 10))"],
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


pytestmark = [
    pytest.mark.sshd,
    pytest.mark.skipif(not _allowed(), reason="needs sudo without a password, and a Python 3.10 for all"),
]


@pytest.fixture
def open_as(sshd: Sshd) -> Iterator[OpenAs]:
    """`open_as(user)`."""
    opened: list[SshConnector] = []

    def open_one(user: str) -> SshConnector:
        settings = resolve_settings(
            "127.0.0.1",
            port=sshd.port,
            user=sshd.user,
            identity_file=sshd.identity,
            known_hosts=sshd.known_hosts,
            config_file=Path("/dev/null"),
        )
        opened.append(SshConnector(name="box", settings=settings, python=PYTHON, become=user))
        return opened[-1]

    yield open_one
    for connector in opened:
        connector.close()


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small install of the service user's, with the real agent carried to it."""
    data = agent_zip()
    monkeypatch.setattr(exchange, "agent_zip", lambda: data)
    folder = Path(tempfile.mkdtemp(prefix="specops-become-"))
    root = folder / "sglang"
    root.mkdir()
    (root / "__init__.py").touch()
    (root / "a.py").write_bytes(OLD)
    (root / "a.py").chmod(0o640)
    shutil.copy(standin.__file__, folder / "standin.py")
    subprocess.run(["sudo", "-n", "chown", "-R", f"{SERVICE}:", str(folder)], check=True)
    subprocess.run(["sudo", "-n", "chmod", "755", str(folder), str(root)], check=True)
    yield root
    subprocess.run(["sudo", "-n", "rm", "-rf", str(folder)], check=True)


def plan_of(root: Path, *more: Step) -> Plan:
    changes = [FileChange(path=f"{root}/a.py", before=digest(OLD), after=digest(NEW), content=NEW)]
    return Plan(
        id=new_id(),
        kind="deploy",
        host="box",
        instance={"state": f"{root.parent}/state", "port": PORT, "python": PYTHON, "root": str(root)},
        facts_digest="",
        summary={},
        steps=(check_files(changes), back_up(changes), stage(changes), swap(changes), *more),
        blobs={digest(NEW): NEW},
        outage=Outage(load_s=None, restore_s=None, replaces=None),
    )


def read(path: Path) -> bytes:
    return subprocess.run(["sudo", "-n", "cat", str(path)], check=True, capture_output=True).stdout


@pytest.mark.parametrize("user", [SERVICE, "root"])
def test_the_agent_is_that_user(open_as: OpenAs, user: str) -> None:
    value = open_as(user).call("facts", {})
    assert isinstance(value, dict)
    assert value["uid"] == pwd.getpwnam(user).pw_uid
    assert value["home"] == pwd.getpwnam(user).pw_dir
    assert echo(open_as(user), a=1) == {"a": 1}


def test_a_user_that_sudo_does_not_give_is_refused(open_as: OpenAs) -> None:
    with pytest.raises(Refused, match=r"sudo: .*no-such-user") as caught:
        open_as("no-such-user").call("run", {})
    assert "become" in caught.value.next_command


@pytest.mark.parametrize("user", [SERVICE, "root"])
def test_files_keep_their_owner_and_mode(open_as: OpenAs, install: Path, user: str) -> None:
    outcome = run_plan(plan_of(install), open_as(user), lambda event: None, secrets={})
    assert isinstance(outcome, Deployed)
    status = (install / "a.py").stat()
    assert read(install / "a.py") == NEW
    assert (status.st_uid, status.st_mode & 0o7777) == (pwd.getpwnam(SERVICE).pw_uid, 0o640)
    state = (install.parent / "state").stat()
    assert (state.st_uid, state.st_mode & 0o7777) == (pwd.getpwnam(user).pw_uid, 0o700)


def test_what_it_launches_is_that_user_s_and_is_taken_back(open_as: OpenAs, install: Path) -> None:
    spec = LaunchSpec(
        argv=(PYTHON, "-S", f"{install.parent}/standin.py", "sglang.launch_server", "--port", str(PORT)),
        cwd=str(install.parent),
        base="login",
        set={},
        unset=(),
        path=(),
        port=PORT,
        cookie="become-test",
    )
    wrong = Step(
        name="a check that fails",
        phase="ready",
        do=Command(op="files.check", args={"files": [{"path": f"{install}/a.py", "sha256": "0" * 64}]}),
        undo=Inert("only reads"),
    )
    owners: list[int] = []

    def look(event: dict[str, object]) -> None:
        entry = event.get("entry")
        if isinstance(entry, dict) and entry["entry"] == "done" and "pid" in (entry["facts"] or {}):
            owners.append(int(entry["facts"]["pid"]))

    plan = plan_of(install, launch(spec), wrong)
    outcome = run_plan(plan, open_as(SERVICE), look, secrets={})
    assert isinstance(outcome, RolledBack)
    assert len(owners) == 1
    assert procs.read_process(owners[0]) is None
    assert read(install / "a.py") == OLD
    log = install.parent / "state"
    logs = subprocess.run(
        [
            "sudo",
            "-n",
            "find",
            str(log),
            "-name",
            "server.log",
            "-user",
            SERVICE,
            "-not",
            "-path",
            "*/evidence/*",
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert logs.count("server.log") == 1
