"""What only a network can do wrong, against a real OpenSSH sshd."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from specops.connect.ssh import SshConnector
from specops.connect.ssh_settings import resolve_settings
from specops.errors import HostUnreachable
from tests.conformance.conftest import echo
from tests.conformance.sshd import Relay, Sshd, make_key

pytestmark = pytest.mark.sshd
RELAY_PORT = 31401
CLOSED_PORT = 31402
FORCED_PORT = 31403
OpenSsh = Callable[..., SshConnector]


@pytest.fixture
def relay(sshd: Sshd) -> Iterator[Relay]:
    relay = Relay(RELAY_PORT, sshd.port)
    yield relay
    relay.close()


@pytest.fixture
def known_relay(sshd: Sshd, relay: Relay, tmp_path: Path) -> Path:
    path = tmp_path / "known_hosts"
    path.write_text(sshd.known_line(port=RELAY_PORT))
    return path


def test_the_server_is_a_real_openssh(sshd: Sshd) -> None:
    assert sshd.banner.startswith("SSH-2.0-OpenSSH_")


def test_an_unknown_host_is_refused_and_then_accepted_once(
    open_ssh: OpenSsh, sshd: Sshd, tmp_path: Path
) -> None:
    known = tmp_path / "made/known_hosts"
    with pytest.raises(HostUnreachable) as caught:
        open_ssh(known_hosts=known).call("facts", {})
    assert sshd.fingerprint() in caught.value.message
    assert "--accept-new-host-key" in caught.value.next_command
    assert not known.exists()

    open_ssh(known_hosts=known, accept_new_host_key=True).call("facts", {})
    assert known.read_text() == sshd.known_line()
    open_ssh(known_hosts=known).call("facts", {})


@pytest.mark.parametrize("accept", [False, True])
def test_a_changed_host_key_is_always_refused(
    open_ssh: OpenSsh, sshd: Sshd, tmp_path: Path, accept: bool
) -> None:
    known = tmp_path / "known_hosts"
    other = make_key(tmp_path / "other")
    known.write_text(f"# ours\n{sshd.known_line(key=other)}")
    with pytest.raises(HostUnreachable, match="CHANGED") as caught:
        open_ssh(known_hosts=known, accept_new_host_key=accept).call("facts", {})
    assert caught.value.message.count("SHA256:") == 2
    assert sshd.fingerprint() in caught.value.message
    assert str(known) in caught.value.message
    assert known.read_text().startswith("# ours\n")


def test_an_accepted_key_is_added_after_a_line_without_an_end(
    open_ssh: OpenSsh, sshd: Sshd, tmp_path: Path
) -> None:
    known = tmp_path / "known_hosts"
    known.write_text("# no end of line")
    open_ssh(known_hosts=known, accept_new_host_key=True).call("facts", {})
    assert known.read_text() == f"# no end of line\n{sshd.known_line()}"


def test_a_key_that_the_host_does_not_know(open_ssh: OpenSsh, tmp_path: Path) -> None:
    stranger = make_key(tmp_path / "stranger")
    with pytest.raises(HostUnreachable) as caught:
        open_ssh(identity_file=stranger).call("facts", {})
    assert f"{stranger}: refused (SHA256:" in caught.value.message
    assert caught.value.exit_code == 12


def test_an_encrypted_key_asks_or_says_what_to_do(open_ssh: OpenSsh, sshd: Sshd, tmp_path: Path) -> None:
    key = make_key(tmp_path / "locked", passphrase="open sesame")
    (sshd.folder / "more_keys").write_text(Path(f"{key}.pub").read_text())
    with pytest.raises(HostUnreachable, match=f"ssh-add {key}"):
        open_ssh(identity_file=key).call("facts", {})
    with pytest.raises(HostUnreachable, match="does not open with that passphrase"):
        open_ssh(identity_file=key, ask=lambda path: "wrong").call("facts", {})
    assert open_ssh(identity_file=key, ask=lambda path: "open sesame").call("facts", {"a": 1})


def test_nobody_listens(open_ssh: OpenSsh) -> None:
    with pytest.raises(HostUnreachable, match="Connection refused") as caught:
        open_ssh(port=CLOSED_PORT).call("run", {})
    assert caught.value.host_state == "nothing was changed"


def test_calls_share_one_connection_and_survive_its_loss(
    open_ssh: OpenSsh, relay: Relay, known_relay: Path
) -> None:
    connector = open_ssh(port=RELAY_PORT, known_hosts=known_relay)
    for index in range(3):
        assert echo(connector, index=index) == {"index": index}
    assert relay.connections == 1
    connector.close()
    assert echo(connector, a=1) == {"a": 1}
    assert relay.connections == 2


def test_a_long_quiet_request_is_left_alone(open_ssh: OpenSsh) -> None:
    assert open_ssh().call("facts", {"behave": "hang", "seconds": 13}) == "late"


def test_a_command_forced_on_us_may_talk_first(sshd: Sshd, tmp_path: Path) -> None:
    wrapper = tmp_path / "wrapper"
    wrapper.write_text('#!/bin/sh\necho "Maintenance on Monday"\nprintf "> "\neval "$SSH_ORIGINAL_COMMAND"\n')
    wrapper.chmod(0o755)
    with Sshd(tmp_path / "sshd", FORCED_PORT, options=(f"ForceCommand {wrapper}",)) as forced:
        config = tmp_path / "ssh_config"
        config.write_text(
            f"Host box\n HostName 127.0.0.1\n Port {FORCED_PORT}\n User {forced.user}\n"
            f" IdentityFile {forced.identity}\n UserKnownHostsFile {forced.known_hosts}\n"
            f" IdentitiesOnly yes\n"
        )
        connector = SshConnector(
            name="box", settings=resolve_settings("box", config_file=config), python=sys.executable
        )
        assert echo(connector, a=1) == {"a": 1}
        connector.close()
        wrapper.write_text("#!/bin/sh\necho This account is closed\nexit 1\n")
        refused = SshConnector(
            name="box", settings=resolve_settings("box", config_file=config), python=sys.executable
        )
        with pytest.raises(Exception, match="This account is closed"):
            refused.call("run", {})
        refused.close()
