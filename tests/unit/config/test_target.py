"""Target: what `--host` and `--instance` may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from specops.config.inventory import Inventory, load_inventory
from specops.config.shipped import shipped
from specops.config.target import Address, parse_address, resolve_target
from specops.errors import UsageError


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inventory:
    monkeypatch.setenv("SPECOPS_LAB_HOME", str(tmp_path))
    return load_inventory(shipped("inventory.yaml"))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("box", Address(user=None, address="box", port=None)),
        ("ops@10.0.0.1:2222", Address(user="ops", address="10.0.0.1", port=2222)),
        ("ops@[fe80::1%eth0]:22", Address(user="ops", address="fe80::1%eth0", port=22)),
        ("[::1]", Address(user=None, address="::1", port=None)),
        ("2001:db8::1", Address(user=None, address="2001:db8::1", port=None)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "@box", "box:", "box:ssh", "[::1", "box:0", "box:65536"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UsageError, match=r"--host"):
        parse_address(text)


def test_a_host_is_found_by_name_and_by_address(example: Inventory) -> None:
    by_name = resolve_target(example, "gpu8")
    assert resolve_target(example, "10.1.230.174") == by_name
    other = resolve_target(example, "root@10.1.230.174:2222").host
    assert (other.name, other.user, other.port) == ("gpu8", "root", 2222)
    assert by_name.host.user == "ops"


def test_an_address_that_is_not_listed_gets_the_defaults(example: Inventory) -> None:
    target = resolve_target(example, "me@192.0.2.7:2200")
    assert (target.host.address, target.host.user, target.host.port) == ("192.0.2.7", "me", 2200)
    assert target.instance.playbook == "eagle3-gated"
    assert target.port(None) == 30000
    assert target.port(31000) == 31000


def test_an_unknown_name_is_refused_with_the_nearest(example: Inventory) -> None:
    with pytest.raises(UsageError, match=r"--host gpu9: .*did you mean 'gpu8'") as caught:
        resolve_target(example, "gpu9")
    assert "gpu8 (10.1.230.174)" in caught.value.next_command


def test_without_a_host_the_choice_must_be_clear(example: Inventory) -> None:
    with pytest.raises(UsageError, match=r"which host\?.*lab \(127.0.0.1\), gpu8 \(10.1.230.174\)"):
        resolve_target(example, None)


def test_a_group_is_not_a_host(example: Inventory) -> None:
    with pytest.raises(UsageError, match="is a group; name one of its hosts: gpu8"):
        resolve_target(example, "h200")


def test_several_instances_must_be_named(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text(
        "hosts: {box: {address: 10.0.0.1, instances: [{name: left, port: 1}, {name: right, port: 2}]}}\n"
    )
    inventory = load_inventory(path)
    with pytest.raises(UsageError, match=r"which instance\? box has several: left, right"):
        resolve_target(inventory, None)
    assert resolve_target(inventory, None, "right").instance.port == 2
    with pytest.raises(UsageError, match="did you mean 'right'"):
        resolve_target(inventory, None, "rihgt")
