"""The two ways to reach a host, given to the same tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from specops.connect import exchange, payload
from specops.connect.base import Connector, Withheld
from specops.connect.local import LocalConnector
from specops.connect.ssh import SshConnector
from specops.connect.ssh_settings import resolve_settings
from tests.conformance.sshd import Sshd

PORT = 31400
Open = Callable[..., Connector]


def echo(connector: Connector, verb: str = "facts", **params: Any) -> Any:
    """The params as the agent got them."""
    value = connector.call(verb, params)
    assert not isinstance(value, Withheld)
    return value["params"]


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with Sshd(tmp_path_factory.mktemp("sshd"), PORT) as server:
        yield server


@pytest.fixture(autouse=True)
def scripted_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is carried here is an agent that answers on command (agent/main.py)."""
    data = payload.build_zip(Path(__file__).parent / "agent")
    monkeypatch.setattr(exchange, "agent_zip", lambda: data)


@pytest.fixture
def open_ssh(sshd: Sshd) -> Iterator[Callable[..., SshConnector]]:
    """`open_ssh(port=…, known_hosts=…, identity_file=…, python=…, accept_new_host_key=…, ask=…)`."""
    opened: list[SshConnector] = []

    def open_one(
        *,
        port: int = sshd.port,
        known_hosts: Path = sshd.known_hosts,
        identity_file: Path = sshd.identity,
        python: str = sys.executable,
        accept_new_host_key: bool = False,
        ask: Callable[[str], str | None] | None = None,
    ) -> SshConnector:
        settings = resolve_settings(
            "127.0.0.1",
            port=port,
            user=sshd.user,
            identity_file=identity_file,
            known_hosts=known_hosts,
            config_file=Path("/dev/null"),
        )
        connector = SshConnector(
            name="box",
            settings=settings,
            python=python,
            accept_new_host_key=accept_new_host_key,
            ask_passphrase=ask,
        )
        opened.append(connector)
        return connector

    yield open_one
    for connector in opened:
        connector.close()


@pytest.fixture(params=["local", pytest.param("ssh", marks=pytest.mark.sshd)])
def open_any(request: pytest.FixtureRequest) -> Open:
    """`open_any(python=…)` for each way to reach a host."""
    if request.param == "ssh":
        opener: Open = request.getfixturevalue("open_ssh")
        return opener
    return lambda python=sys.executable: LocalConnector(name="box", python=python)
