"""What users of OpenSSH have set up for themselves: ssh_config, jump hosts, agents, IPv6, start files."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from specops.connect import link
from specops.connect.ssh import SshConnector
from specops.connect.ssh_settings import resolve_settings
from specops.errors import ConfigError, HostUnreachable, Refused
from tests.conformance.conftest import echo
from tests.conformance.sshd import Sshd, make_key

pytestmark = pytest.mark.sshd
NEAR_PORT = 31409
NOISY_PORT = 31426
SIX_PORT = 31427
OpenSsh = Callable[..., SshConnector]
PASS_ON = """
import os, select, socket, sys
link = socket.create_connection((sys.argv[1], int(sys.argv[2])))
sys.stderr.write("passing on\\n")
while True:
    for ready in select.select([0, link], [], [])[0]:
        data = os.read(0, 65536) if ready == 0 else link.recv(65536)
        if not data:
            sys.exit(0)
        link.sendall(data) if ready == 0 else os.write(1, data)
"""


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """A second host, with a host key and an account's key of its own."""
    with Sshd(tmp_path_factory.mktemp("near"), NEAR_PORT, options=("LogLevel VERBOSE",)) as server:
        yield server


@pytest.fixture
def open_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str, str], SshConnector]]:
    """`open_named(text of ssh_config, name)`."""
    opened: list[SshConnector] = []

    def open_one(text: str, name: str) -> SshConnector:
        config = tmp_path / "ssh_config"
        config.write_text(text)

        def resolve_jump(address: str, **options: object) -> object:
            return resolve_settings(address, config_file=config, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(link, "resolve_settings", resolve_jump)
        settings = resolve_settings(name, config_file=config)
        opened.append(SshConnector(name=name, settings=settings, python=sys.executable))
        return opened[-1]

    yield open_one
    for connector in opened:
        connector.close()


def entry(name: str, server: Sshd, *more: str) -> str:
    lines = (
        f"Host {name}",
        "HostName 127.0.0.1",
        f"Port {server.port}",
        f"User {server.user}",
        f"IdentityFile {server.identity}",
        "IdentitiesOnly yes",
        f"UserKnownHostsFile {server.known_hosts}",
        *more,
    )
    return "\n  ".join(lines) + "\n"


def accepted(server: Sshd) -> int:
    return (server.folder / "sshd.log").read_text().count("Accepted publickey")


def test_a_jump_through_a_second_host(
    sshd: Sshd, near: Sshd, open_named: Callable[[str, str], SshConnector]
) -> None:
    config = entry("far", sshd, "ProxyJump near") + entry("near", near)
    before = accepted(near)
    connector = open_named(config, "far")
    for index in range(2):
        assert echo(connector, index=index) == {"index": index}
    assert accepted(near) == before + 1


def test_a_jump_host_is_checked_like_any_other(
    sshd: Sshd, near: Sshd, tmp_path: Path, open_named: Callable[[str, str], SshConnector]
) -> None:
    config = entry("far", sshd, "ProxyJump near") + entry("near", near)
    near.known_hosts.write_text("")
    try:
        with pytest.raises(HostUnreachable, match="not a known host") as unknown:
            open_named(config, "far").call("run", {})
        near.known_hosts.write_text(near.known_line(key=make_key(tmp_path / "other")))
        with pytest.raises(HostUnreachable, match="CHANGED") as changed:
            open_named(config, "far").call("run", {})
    finally:
        near.known_hosts.write_text(near.known_line())
    assert near.fingerprint() in unknown.value.message
    assert near.fingerprint() in changed.value.message


def test_a_jump_host_that_is_down_is_named(
    sshd: Sshd, near: Sshd, open_named: Callable[[str, str], SshConnector]
) -> None:
    config = entry("far", sshd, "ProxyJump near") + entry("near", near).replace(str(NEAR_PORT), "31402")
    with pytest.raises(HostUnreachable, match=r"jump host near of far .* Connection refused"):
        open_named(config, "far").call("run", {})


def test_a_circle_of_jump_hosts_is_refused(
    sshd: Sshd, open_named: Callable[[str, str], SshConnector]
) -> None:
    config = entry("far", sshd, "ProxyJump near") + entry("near", sshd, "ProxyJump far")
    with pytest.raises(ConfigError, match="goes in a circle"):
        open_named(config, "far").call("run", {})


def test_a_proxy_command(sshd: Sshd, tmp_path: Path, open_named: Callable[[str, str], SshConnector]) -> None:
    script = tmp_path / "pass on.py"
    script.write_text(PASS_ON)
    command = f"ProxyCommand {sys.executable} {shlex.quote(str(script))} %h %p"
    assert echo(open_named(entry("far", sshd, command), "far"), a=1) == {"a": 1}
    broken = entry("far", sshd, "ProxyCommand echo no way through >&2; exit 3")
    with pytest.raises(HostUnreachable, match="no way through"):
        open_named(broken, "far").call("run", {})


def test_a_name_cannot_become_a_command(
    sshd: Sshd, tmp_path: Path, open_named: Callable[[str, str], SshConnector]
) -> None:
    planted = tmp_path / "planted"
    text = entry("far", sshd, "ProxyCommand true %r").replace(
        f"User {sshd.user}", f'User "x;touch {planted}"'
    )
    with pytest.raises((ConfigError, HostUnreachable)):
        open_named(text, "far").call("run", {})
    assert not planted.exists()


@pytest.fixture
def ssh_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """`ssh_agent(key)` gives the running agent a key; encrypted ones open with "open sesame"."""
    place = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(place)], stdout=subprocess.PIPE, text=True)
    assert agent.stdout is not None
    assert "SSH_AUTH_SOCK" in agent.stdout.readline()
    monkeypatch.setenv("SSH_AUTH_SOCK", str(place))
    answer = tmp_path / "answer"
    answer.write_text("#!/bin/sh\necho open sesame\n")
    answer.chmod(0o700)

    def add(key: Path) -> None:
        env = {**os.environ, "SSH_ASKPASS": str(answer), "SSH_ASKPASS_REQUIRE": "force", "DISPLAY": ":0"}
        subprocess.run(["ssh-add", "-q", str(key)], check=True, env=env, stdin=subprocess.DEVNULL)

    yield add
    agent.send_signal(signal.SIGTERM)
    agent.wait(timeout=10)
    agent.stdout.close()


def test_an_encrypted_key_by_way_of_the_agent(
    open_ssh: OpenSsh, sshd: Sshd, tmp_path: Path, ssh_agent: Callable[[Path], None]
) -> None:
    key = make_key(tmp_path / "locked", passphrase="open sesame")
    (sshd.folder / "more_keys").write_text(Path(f"{key}.pub").read_text())
    with pytest.raises(HostUnreachable, match="encrypted and not in the ssh-agent"):
        open_ssh(identity_file=key).call("facts", {})
    ssh_agent(key)
    assert echo(open_ssh(identity_file=key), a=1) == {"a": 1}


def test_the_named_key_comes_before_the_agent_s_many(
    open_ssh: OpenSsh, sshd: Sshd, tmp_path: Path, ssh_agent: Callable[[Path], None]
) -> None:
    for number in range(8):
        ssh_agent(make_key(tmp_path / f"key{number}"))
    ssh_agent(sshd.identity)
    assert echo(open_ssh(), a=1) == {"a": 1}
    # Without a name, sshd would close the connection at the sixth: we stop before, and say so.
    settings = resolve_settings(
        "127.0.0.1",
        port=sshd.port,
        user=sshd.user,
        known_hosts=sshd.known_hosts,
        config_file=_without_files(tmp_path),
    )
    connector = SshConnector(name="box", settings=settings, python=sys.executable)
    with pytest.raises(HostUnreachable, match="not offered, 5 others were refused before"):
        connector.call("facts", {})
    connector.close()


def _without_files(folder: Path) -> Path:
    path = folder / "no_identities"
    path.write_text(f"IdentityFile {folder}/none\n")
    return path


def test_ipv6(sshd: Sshd, tmp_path: Path) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", SIX_PORT))
    except OSError:
        pytest.skip("this machine has no ::1")
    with Sshd(tmp_path / "sshd", SIX_PORT, options=("ListenAddress ::1",)) as server:
        known = tmp_path / "known_hosts"
        known.write_text(server.known_line().replace("[127.0.0.1]", "[::1]"))
        settings = resolve_settings(
            "::1",
            port=SIX_PORT,
            user=server.user,
            identity_file=server.identity,
            known_hosts=known,
            config_file=Path("/dev/null"),
        )
        assert settings.key_name == f"[::1]:{SIX_PORT}"
        connector = SshConnector(name="box", settings=settings, python=sys.executable)
        assert echo(connector, a=1) == {"a": 1}
        connector.close()


def test_start_files_that_talk(tmp_path: Path) -> None:
    """A bash reads $BASH_ENV as it reads ~/.bashrc where sshd starts it."""
    noise = tmp_path / "noise"
    noise.write_text(
        'echo "Welcome to the cluster"; printf "no end of line \\036{" ; echo "quota: 99%" >&2\n'
    )
    with Sshd(tmp_path / "sshd", NOISY_PORT, options=(f"SetEnv BASH_ENV={noise}",)) as server:
        settings = resolve_settings(
            "127.0.0.1",
            port=NOISY_PORT,
            user=server.user,
            identity_file=server.identity,
            known_hosts=server.known_hosts,
            config_file=Path("/dev/null"),
        )
        connector = SshConnector(name="box", settings=settings, python=sys.executable)
        assert echo(connector, a=1) == {"a": 1}
        connector.close()
        lost = SshConnector(name="box", settings=settings, python="/nowhere/python")
        with pytest.raises(Refused, match="/nowhere/python"):
            lost.call("run", {})
        lost.close()
