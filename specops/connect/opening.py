"""From a host of the inventory to a connector."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from specops.connect.base import Connector
    from specops.connect.identity import AskPassphrase

LOCAL = "local"
"""As an address: this machine, without SSH."""

SSH_PORT = 22


class Reachable(Protocol):
    """What a connector needs to know of a host (specops.config.inventory.Host has it)."""

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def user(self) -> str | None: ...
    @property
    def identity_file(self) -> str | None: ...
    @property
    def known_hosts(self) -> str | None: ...
    @property
    def become(self) -> str | None: ...


def open_connector(
    host: Reachable,
    *,
    python: str,
    accept_new_host_key: bool = False,
    ask_passphrase: AskPassphrase | None = None,
) -> Connector:
    """A connector that begins to connect at once and runs the agent with `python` on the host.

    What goes wrong with that is raised by its first request.

    Address `local` means this machine, without SSH.
    """
    if host.address == LOCAL:
        from specops.connect.local import LocalConnector

        return LocalConnector(name=host.name, python=python, become=host.become)
    from specops.connect.dial import Dialing
    from specops.connect.ssh_settings import SshSettings, resolve_settings

    def settle() -> SshSettings:
        return resolve_settings(
            host.address,
            # The inventory fills in 22; a port that ssh_config gives to this name is the better guess then.
            port=None if host.port == SSH_PORT else host.port,
            user=host.user,
            identity_file=None if host.identity_file is None else Path(host.identity_file),
            known_hosts=None if host.known_hosts is None else Path(host.known_hosts),
        )

    dialing = Dialing(settle)
    # Takes a while, which the dialing uses.
    from specops.connect.ssh import SshConnector

    connector = SshConnector(
        name=host.name,
        settings=dialing,
        python=python,
        become=host.become,
        accept_new_host_key=accept_new_host_key,
        ask_passphrase=ask_passphrase,
    )
    connector.prepare()
    return connector
