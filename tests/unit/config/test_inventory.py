"""Inventory: inheritance, where it is looked for, and the lab's own entry."""

from __future__ import annotations

from pathlib import Path

import pytest

from specops.config.inventory import load_inventory
from specops.config.shipped import shipped
from specops.config.target import resolve_target
from specops.errors import ConfigError

LAYERED = """\
defaults: {user: base, env: {A: 1, B: base}, state: ~/state}
groups:
  gpus: {hosts: [box], user: group, env: {B: group, C: "yes"}, python: /group/python}
hosts:
  box:
    address: 10.0.0.1
    identity_file: keys/id
    env: {C: host}
    instances:
      - {name: left, port: 30000}
      - {name: right, port: 30010, python: /right/python, env: {D: true}, vars: {model: /m}}
  plain: {address: plain.example}
"""
LAB = """\
hosts:
  lab: {address: 127.0.0.1, port: 2222, user: me, playbook: lab, instances: [{name: tiny, port: 31000}]}
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No inventory of whoever runs the tests is found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SPECOPS_LAB_HOME", str(tmp_path / "lab"))
    monkeypatch.delenv("SPECOPS_INVENTORY", raising=False)
    return tmp_path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_nearer_setting_wins_and_variables_are_merged(tmp_path: Path) -> None:
    inventory = load_inventory(write(tmp_path / "a" / "hosts.yaml", LAYERED))
    box = inventory.hosts["box"]
    assert (box.user, box.port) == ("group", 22)
    assert box.identity_file == str(tmp_path / "a" / "keys" / "id")
    left, right = box.instances
    assert left.env == {"A": "1", "B": "group", "C": "host"}
    assert right.env == {"A": "1", "B": "group", "C": "host", "D": "true"}
    assert (left.python, right.python) == ("/group/python", "/right/python")
    assert right.vars == {"model": "/m"}
    plain = inventory.hosts["plain"]
    assert (plain.user, plain.instances[0].name, plain.instances[0].state) == ("base", "default", "~/state")


def test_the_places_an_inventory_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def host(name: str) -> str:
        return f"hosts: {{{name}: {{address: 10.0.0.1}}}}\n"

    assert load_inventory().path == shipped("inventory.yaml")
    write(tmp_path / "config" / "specops" / "inventory.yaml", host("settings"))
    assert list(load_inventory().hosts) == ["settings"]
    write(tmp_path / "inventory.yaml", host("here"))
    assert list(load_inventory().hosts) == ["here"]
    monkeypatch.setenv("SPECOPS_INVENTORY", str(write(tmp_path / "named.yaml", host("named"))))
    assert list(load_inventory().hosts) == ["named"]
    assert list(load_inventory(write(tmp_path / "given.yaml", host("given"))).hosts) == ["given"]
    with pytest.raises(ConfigError, match=r"nowhere.yaml:1: no such inventory file"):
        load_inventory("nowhere.yaml")


def test_the_labs_own_entry_replaces_the_example(tmp_path: Path) -> None:
    write(tmp_path / "lab" / "inventory.yaml", LAB)
    target = resolve_target(load_inventory(), "lab")
    assert (target.host.port, target.host.user, target.instance.port) == (2222, "me", 31000)


def test_the_lab_does_not_become_the_default_nor_replace_somebodys_lab(tmp_path: Path) -> None:
    write(tmp_path / "lab" / "inventory.yaml", LAB)
    own = write(tmp_path / "own.yaml", "hosts: {box: {address: 10.0.0.1}}\n")
    inventory = load_inventory(own)
    assert resolve_target(inventory, None).host.name == "box"
    assert resolve_target(inventory, "lab").host.port == 2222
    other = write(tmp_path / "other.yaml", "hosts: {lab: {address: 10.9.9.9}}\n")
    assert load_inventory(other).hosts["lab"].address == "10.9.9.9"
