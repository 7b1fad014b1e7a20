"""Target: which instance on which host a command is about, from `--host` and the inventory."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from specops.config.inventory import Host, Instance, Inventory, host_from
from specops.config.source import nearest
from specops.errors import UsageError

DEFAULT_PORT = 30000
"""SGLang's own default."""

ADDRESS = re.compile(
    r"(?:(?P<user>[^@]+)@)?(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<name>[^@:\[\]\s]+))(?::(?P<port>\d+))?"
)
BARE_V6 = re.compile(r"(?:(?P<user>[^@]+)@)?(?P<v6>[0-9A-Fa-f]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f.]*(?:%\w+)?)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    host: Host
    instance: Instance

    def port(self, playbook_port: int | None) -> int:
        """What the instance serves on: the inventory's port, else the playbook's, else SGLang's default."""
        return self.instance.port or playbook_port or DEFAULT_PORT


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    user: str | None
    address: str
    port: int | None


def parse_address(text: str) -> Address:
    """`[user@]address[:port]`; an IPv6 address with a port is in brackets. Raises UsageError."""
    match = BARE_V6.fullmatch(text) or ADDRESS.fullmatch(text)
    if match is None:
        raise UsageError(f"--host {text}: write [user@]address[:port], with an IPv6 address in brackets")
    found = match.groupdict()
    port = int(found["port"]) if found.get("port") else None
    if port is not None and not 1 <= port <= 65535:
        raise UsageError(f"--host {text}: port {port} is not from 1 to 65535")
    return Address(user=found["user"], address=found["v6"] or found["name"], port=port)


def resolve_target(inventory: Inventory, host_arg: str | None, instance_arg: str | None = None) -> Target:
    """The host by name or address, or the default host; then its instance, by name where it has several.

    Raises UsageError, with the list, where the choice is not clear.
    """
    host = default_host(inventory) if host_arg is None else find_host(inventory, host_arg)
    return Target(host=host, instance=find_instance(host, instance_arg))


def default_host(inventory: Inventory) -> Host:
    if inventory.default_host is not None:
        return inventory.hosts[inventory.default_host]
    raise UsageError(
        f"which host? {inventory.path} has no default_host and several hosts: {listing(inventory)}",
        next_command=f"add --host {next(iter(inventory.hosts))}",
    )


def find_host(inventory: Inventory, text: str) -> Host:
    if text in inventory.hosts:
        return inventory.hosts[text]
    if text in inventory.groups:
        members = ", ".join(inventory.groups[text])
        raise UsageError(f"--host {text}: is a group; name one of its hosts: {members}")
    wanted = parse_address(text)
    found = [host for host in inventory.hosts.values() if wanted.address in (host.name, host.address)]
    if len(found) > 1 and wanted.port is not None:
        found = [host for host in found if host.port == wanted.port] or found
    if len(found) > 1:
        names = ", ".join(host.name for host in found)
        raise UsageError(f"--host {text}: several hosts have this address, name one of them: {names}")
    if found:
        return replace(found[0], user=wanted.user or found[0].user, port=wanted.port or found[0].port)
    if wanted.user is None and not re.search(r"[.:]", text):
        raise UsageError(
            f"--host {text}: no host in {inventory.path} is called so{nearest(text, inventory.hosts)}",
            next_command=f"name one of: {listing(inventory)}; or an address that is not listed: user@{text}",
        )
    host = host_from(wanted.address, wanted.address, [inventory.defaults], (), inventory.path.parent)
    return replace(host, user=wanted.user or host.user, port=wanted.port or host.port)


def find_instance(host: Host, name: str | None) -> Instance:
    names = [instance.name for instance in host.instances]
    if name is None and len(names) == 1:
        return host.instances[0]
    if name is None:
        raise UsageError(
            f"which instance? {host.name} has several: {', '.join(names)}",
            next_command=f"add --instance {names[0]}",
        )
    for instance in host.instances:
        if instance.name == name:
            return instance
    raise UsageError(f"--instance {name}: {host.name} has no such instance{nearest(name, names)}")


def listing(inventory: Inventory) -> str:
    return ", ".join(f"{host.name} ({host.address})" for host in inventory.hosts.values())
