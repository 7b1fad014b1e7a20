"""The inventory's word, then ssh_config's."""

from __future__ import annotations

from pathlib import Path

import pytest

from specops.connect.host_keys import read_known_keys
from specops.connect.ssh_settings import resolve_settings
from specops.errors import ConfigError

CONFIG = """\
Host gpu
  HostName 127.0.0.9
  Port 2200
  User ann
  IdentityFile {key}
  UserKnownHostsFile {folder}/one {folder}/two
  GlobalKnownHostsFile none
  HostKeyAlias gpu-box
  ProxyJump bob@jump:2222
"""
ED25519 = "AAAAC3NzaC1lZDI1NTE5AAAAI"


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    (tmp_path / "key").touch()
    path = tmp_path / "config"
    path.write_text(CONFIG.format(key=tmp_path / "key", folder=tmp_path))
    return path


@pytest.mark.parametrize("openssh", [True, False])
def test_ssh_config_is_honoured_with_and_without_openssh(
    config_file: Path, monkeypatch: pytest.MonkeyPatch, openssh: bool
) -> None:
    if not openssh:
        monkeypatch.setattr("shutil.which", lambda name: None)
    settings = resolve_settings("gpu", config_file=config_file)
    assert (settings.hostname, settings.port, settings.user) == ("127.0.0.9", 2200, "ann")
    assert settings.identity_files == (config_file.with_name("key"),)
    assert settings.key_name == "gpu-box"
    assert settings.jumps == ("bob@jump:2222",)


def test_the_inventory_wins(config_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.touch()
    settings = resolve_settings(
        "gpu",
        port=22,
        user="eve",
        identity_file=other,
        known_hosts=tmp_path / "ours",
        config_file=config_file,
    )
    assert (settings.port, settings.user, settings.identity_files) == (22, "eve", (other,))
    assert settings.only_these_identities
    assert settings.known_hosts[0] == tmp_path / "ours"


def test_a_named_identity_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        resolve_settings("127.0.0.1", identity_file=tmp_path / "gone", config_file=Path("/dev/null"))


def test_the_first_file_that_knows_a_host_decides(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    ours = ED25519 + "A" * 43
    theirs = ED25519 + "B" * 43
    first.write_text(f"# comment\n[127.0.0.1]:31400 ssh-ed25519 {ours}\n")
    second.write_text(f"[127.0.0.1]:31400 ssh-ed25519 {theirs}\n")
    known = read_known_keys([tmp_path / "gone", first, second], "[127.0.0.1]:31400")
    assert [(path, key.get_base64()) for path, key in known.keys] == [(first, ours)]
    assert read_known_keys([first], "other").keys == ()
