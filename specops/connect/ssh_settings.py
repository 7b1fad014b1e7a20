"""How to reach a host over SSH: the inventory's word first, then the user's own ssh_config."""

from __future__ import annotations

import getpass
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specops.errors import ConfigError, HostUnreachable

USER_CONFIG = Path("~/.ssh/config")
USER_KNOWN_HOSTS = "~/.ssh/known_hosts"
SYSTEM_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts"
DEFAULT_IDENTITIES = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")


@dataclass(frozen=True, kw_only=True, slots=True)
class SshSettings:
    address: str
    """As it was asked for; ssh_config may lead it to another `hostname`."""
    hostname: str
    port: int
    user: str
    identity_files: tuple[Path, ...]
    """In the order to try."""
    only_these_identities: bool
    """No other key of a running ssh-agent is offered: six of them are one login too many."""
    known_hosts: tuple[Path, ...]
    """The first one that knows the host decides; an accepted key is added to the first one."""
    key_name: str
    """The name under which known_hosts files know the host: `name`, `[name]:port` or a HostKeyAlias."""
    jumps: tuple[str, ...] = ()
    proxy_command: str | None = None


def resolve_settings(
    address: str,
    *,
    port: int | None = None,
    user: str | None = None,
    identity_file: Path | None = None,
    known_hosts: Path | None = None,
    config_file: Path | None = None,
) -> SshSettings:
    """Settings for `address`, which may be an alias of ssh_config (read by `ssh -G` where there is one)."""
    options = read_ssh_config(address, port=port, user=user, config_file=config_file)
    hostname = _one(options, "hostname") or address
    chosen_port = port or int(_one(options, "port") or 22)
    own = () if known_hosts is None else (known_hosts.expanduser(),)
    if identity_file is None:
        named = options.get("identityfile") or DEFAULT_IDENTITIES
        identities = tuple(path for name in named if (path := Path(name).expanduser()).is_file())
    else:
        identities = (identity_file.expanduser(),)
        if not identities[0].is_file():
            raise ConfigError(
                f"identity file {identities[0]} of host {address} does not exist",
                host_state="nothing was changed",
                next_command="set `identity_file` of this host in inventory.yaml",
            )
    bare = hostname if chosen_port == 22 else f"[{hostname}]:{chosen_port}"
    jumps = tuple(hop for value in options.get("proxyjump", ()) for hop in value.split(",") if hop != "none")
    return SshSettings(
        address=address,
        hostname=hostname,
        port=chosen_port,
        user=user or _one(options, "user") or getpass.getuser(),
        identity_files=identities,
        only_these_identities=identity_file is not None or _one(options, "identitiesonly") == "yes",
        known_hosts=(*own, *_known_hosts_files(options)),
        key_name=_one(options, "hostkeyalias") or bare,
        jumps=jumps,
        proxy_command=_one(options, "proxycommand"),
    )


def read_ssh_config(
    address: str, *, port: int | None, user: str | None, config_file: Path | None
) -> Mapping[str, Sequence[str]]:
    """Option (lower case) -> values, for one host. Without OpenSSH, paramiko's reader does."""
    ssh = shutil.which("ssh")
    if ssh is None:
        return _read_without_openssh(address, config_file)
    argv = [ssh, "-G"]
    argv += [] if config_file is None else ["-F", str(config_file)]
    argv += [] if port is None else ["-p", str(port)]
    argv += [] if user is None else ["-l", user]
    try:
        done = subprocess.run(
            [*argv, "--", address],
            capture_output=True,
            text=True,
            check=False,
            timeout=15,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise HostUnreachable(
            f"`ssh -G {address}` did not answer within 15 s: a `Match exec` in ssh_config may hang",
            host_state="nothing was changed",
        ) from error
    if done.returncode != 0:
        raise ConfigError(f"ssh_config: {done.stderr.strip() or 'ssh -G failed'}")
    options: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        # An option that is not set is said as `none`; identityfile and knownhosts may be set to it.
        if value and value != "none":
            options.setdefault(key, []).extend(value.split() if key.endswith("knownhostsfile") else [value])
    return options


def _read_without_openssh(address: str, config_file: Path | None) -> Mapping[str, Sequence[str]]:
    path = (config_file or USER_CONFIG).expanduser()
    if not path.is_file():
        return {}
    from specops.connect.library import paramiko

    found = paramiko.SSHConfig.from_path(str(path)).lookup(address)
    return {key: [value] if isinstance(value, str) else list(value) for key, value in found.items()}


def _known_hosts_files(options: Mapping[str, Sequence[str]]) -> tuple[Path, ...]:
    named = [
        *(options.get("userknownhostsfile") or (USER_KNOWN_HOSTS,)),
        *(options.get("globalknownhostsfile") or (SYSTEM_KNOWN_HOSTS,)),
    ]
    return tuple(Path(name).expanduser() for name in named)


def _one(options: Mapping[str, Sequence[str]], key: str) -> str | None:
    values = options.get(key)
    return values[0] if values else None
