"""Inventory: which hosts there are, how they are reached, and which SGLang instances are on them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specops.config.schema import Text, keys, read_node, setting, within
from specops.config.shipped import find_inventory, lab_home
from specops.config.source import Source, child, complain, nearest, read_source

if TYPE_CHECKING:
    from yaml.nodes import MappingNode, Node

LAB = "lab"


def user_problem(name: bool | str) -> str | None:
    if isinstance(name, bool) or re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", name):
        return None
    return f"must be true, false or a user's name, not {name!r}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What `defaults`, a group and a host can all say; the nearer one wins, `env` and `vars` key by key."""

    port: int | None = setting("of the SSH server", default=None, check=within(1, 65535))
    user: str | None = setting("remote user; None: what OpenSSH's own configuration says", default=None)
    become: bool | str | None = setting(
        "run the agent through `sudo -n`: true for root, or a user", default=None, check=user_problem
    )
    identity_file: str | None = setting("private key on this machine", default=None)
    known_hosts: str | None = setting("known_hosts file on this machine", default=None)
    python: str | None = setting("interpreter of the SGLang install, on the host", default=None)
    state: str | None = setting("folder on the host for journals and backups", default=None)
    playbook: str | None = setting("name or path", default=None)
    env: Mapping[str, Text] = setting("variables of the server, over the playbook's", default={})
    vars: Mapping[str, Text] = setting("fills ${name} in the playbook", default={})


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupEntry(Settings):
    hosts: tuple[str, ...] = setting("names of hosts")


@dataclass(frozen=True, kw_only=True, slots=True)
class InstanceEntry:
    name: str = setting("unique on the host")
    port: int | None = setting("that SGLang serves on", default=None, check=within(1, 65535))
    python: str | None = setting("another install than the host's", default=None)
    state: str | None = setting("another state folder than the host's", default=None)
    playbook: str | None = setting("another playbook than the host's", default=None)
    env: Mapping[str, Text] = setting("over the host's", default={})
    vars: Mapping[str, Text] = setting("over the host's", default={})


@dataclass(frozen=True, kw_only=True, slots=True)
class HostEntry(Settings):
    address: str = setting("IP address or DNS name")
    instances: tuple[InstanceEntry, ...] = setting("none: one, called default", default=())


@dataclass(frozen=True, kw_only=True, slots=True)
class InventoryFile:
    """The file as it is written."""

    defaults: Settings = setting("for every host", default=Settings())
    groups: Mapping[str, GroupEntry] = setting("settings that several hosts share", default={})
    default_host: str | None = setting("where no --host is given", default=None)
    hosts: Mapping[str, HostEntry] = setting("by name")


@dataclass(frozen=True, kw_only=True, slots=True)
class Instance:
    """One SGLang install and one port on a host, with every inherited setting filled in."""

    name: str
    port: int | None
    """That SGLang serves on; None: the playbook's."""
    python: str
    state: str
    playbook: str
    env: Mapping[str, str]
    vars: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    name: str
    address: str
    port: int
    user: str | None
    become: str | None
    """The user that the agent runs as, by sudo; None: the one that logs in."""
    identity_file: str | None
    known_hosts: str | None
    instances: tuple[Instance, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Inventory:
    path: Path
    hosts: Mapping[str, Host]
    groups: Mapping[str, tuple[str, ...]]
    default_host: str | None
    """Named in the file, or its only host."""
    defaults: Settings


def load_inventory(path: str | Path | None = None) -> Inventory:
    """Read `path`, or the first of the places in `find_inventory`; the lab's own entry is added to it.

    Raises ConfigError.
    """
    inventory = read_inventory(read_source(find_inventory(path), what="inventory"))
    own = lab_home() / "inventory.yaml"
    return with_lab(inventory, own) if own.is_file() else inventory


def with_lab(inventory: Inventory, own: Path) -> Inventory:
    """Add the running lab's `lab`. A host of that name at another address is somebody's own and stays."""
    placeholder = inventory.hosts.get(LAB)
    if placeholder is not None and placeholder.address != "127.0.0.1":
        return inventory
    lab = read_inventory(read_source(own, what="lab's inventory")).hosts.get(LAB)
    if lab is None:
        return inventory
    return Inventory(
        path=inventory.path,
        hosts={**inventory.hosts, LAB: lab},
        groups=inventory.groups,
        default_host=inventory.default_host,
        defaults=inventory.defaults,
    )


def read_inventory(source: Source) -> Inventory:
    raw = read_node(source.root, InventoryFile)
    check_references(source.root, raw)
    folder = source.path.parent
    hosts = {name: build_host(name, entry, raw, folder) for name, entry in raw.hosts.items()}
    only = next(iter(hosts)) if len(hosts) == 1 else None
    return Inventory(
        path=source.path,
        hosts=hosts,
        groups={name: group.hosts for name, group in raw.groups.items()},
        default_host=raw.default_host or only,
        defaults=raw.defaults,
    )


def check_references(root: MappingNode, raw: InventoryFile) -> None:
    """Names that name nothing, and instances that cannot be told apart."""
    if not raw.hosts:
        raise complain(child(root, "hosts"), "hosts: no host is given")
    if raw.default_host is not None:
        require_host(raw, raw.default_host, child(root, "default_host"), "default_host")
    for name, group in raw.groups.items():
        if name in raw.hosts:
            raise complain(child(root, "groups", name), f"groups.{name}: a host has this name too")
        for index, host in enumerate(group.hosts):
            require_host(raw, host, child(root, "groups", name, "hosts", str(index)), f"groups.{name}.hosts")
    for name, entry in raw.hosts.items():
        check_instances(root, name, entry.instances)


def require_host(raw: InventoryFile, name: str, spot: Node, place: str) -> None:
    if name not in raw.hosts:
        raise complain(spot, f"{place}: no host is called {name!r}{nearest(name, raw.hosts)}")


def check_instances(root: MappingNode, host: str, instances: Sequence[InstanceEntry]) -> None:
    names: dict[str, int] = {}
    ports: dict[int, str] = {}
    for index, instance in enumerate(instances):
        spot = child(root, "hosts", host, "instances", str(index))
        place = f"hosts.{host}.instances[{index}]"
        if instance.name in names:
            raise complain(
                child(spot, "name"), f"{place}: instance {instance.name!r} is already on this host"
            )
        if instance.port is not None and instance.port in ports:
            taken = ports[instance.port]
            raise complain(
                child(spot, "port"), f"{place}: port {instance.port} is already that of instance {taken!r}"
            )
        names[instance.name] = index
        if instance.port is not None:
            ports[instance.port] = instance.name


def build_host(name: str, entry: HostEntry, raw: InventoryFile, folder: Path) -> Host:
    layers = [raw.defaults, *(group for group in raw.groups.values() if name in group.hosts), entry]
    return host_from(name, entry.address, layers, entry.instances, folder)


def host_from(
    name: str,
    address: str,
    layers: Sequence[Settings],
    instances: Sequence[InstanceEntry],
    folder: Path,
) -> Host:
    """Merge the layers, nearest last. Relative key files are looked for beside the inventory."""
    merged = merge(layers)
    return Host(
        name=name,
        address=address,
        port=merged["port"] or 22,
        user=merged["user"],
        become={True: "root", False: None}.get(merged["become"], merged["become"]),
        identity_file=local_path(merged["identity_file"], folder),
        known_hosts=local_path(merged["known_hosts"], folder),
        instances=tuple(
            build_instance(instance, merged) for instance in instances or (InstanceEntry(name="default"),)
        ),
    )


def build_instance(entry: InstanceEntry, host: Mapping[str, Any]) -> Instance:
    return Instance(
        name=entry.name,
        port=entry.port,
        python=entry.python or host["python"] or "python3",
        state=entry.state or host["state"] or "~/.local/state/specops",
        playbook=entry.playbook or host["playbook"] or "eagle3-gated",
        env={**host["env"], **entry.env},
        vars={**host["vars"], **entry.vars},
    )


def merge(layers: Sequence[Settings]) -> dict[str, Any]:
    merged: dict[str, Any] = dict.fromkeys(keys(Settings))
    merged["env"], merged["vars"] = {}, {}
    for layer in layers:
        for item in fields(Settings):
            value = getattr(layer, item.name)
            if isinstance(merged[item.name], dict):
                merged[item.name] = {**merged[item.name], **value}
            elif value is not None:
                merged[item.name] = value
    return merged


def local_path(path: str | None, folder: Path) -> str | None:
    return None if path is None else str(folder / Path(path).expanduser())
