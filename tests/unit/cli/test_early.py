"""A connection that begins before the command line is read: used by the command it is for, or closed."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from specops.cli import early, main
from specops.connect import opening
from specops.ui import ask

Json = Any


class Recorded:
    """A connector that answers nothing; `asked` is what it was opened with."""

    host = "box"

    def __init__(self, asked: dict[str, Json]) -> None:
        self.asked, self.called, self.closed = asked, 0, 0

    def call(self, verb: str, params: Json, **_: Json) -> Json:
        self.called += 1
        return {}

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Recorded]:
    made: list[Recorded] = []

    def open_connector(host: Json, **asked: Json) -> Recorded:
        made.append(Recorded({"host": host.name, **asked}))
        return made[-1]

    monkeypatch.setattr(opening, "open_connector", open_connector)
    return made


@pytest.fixture
def inventory(tmp_path: Path) -> str:
    path = tmp_path / "inventory.yaml"
    hosts = {name: {"address": "127.0.0.1", "instances": [{"name": "one", "port": 31405}]} for name in "ab"}
    path.write_text(json.dumps({"hosts": hosts}))
    return str(path)


def test_the_command_takes_what_was_begun(opened: list[Recorded], inventory: str) -> None:
    assert main.run(["history", "--host=b", "--inventory", inventory, "--json"]) == 0
    (only,) = opened
    assert (only.asked["host"], only.called, only.closed) == ("b", 1, 1)


@pytest.mark.parametrize("wrong", [["--no-such-option"], ["--host", "c"], ["--help"]])
def test_a_command_that_does_not_come_to_it_leaves_nothing_open(
    wrong: list[str], opened: list[Recorded], inventory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main.run(["history", "--inventory", inventory, "--host", "a", *wrong])
    assert code == (0 if wrong == ["--help"] else 2)
    assert wrong[0] != "--no-such-option" or "specops history --help" in capsys.readouterr().err
    assert [each.called for each in opened] == [0] * len(opened)
    assert all(each.closed == 1 for each in opened)
    assert len(opened) == (1 if wrong == ["--no-such-option"] else 0)
    assert early.take(object(), accept_new=False) is None  # type: ignore[arg-type]


def test_what_leads_elsewhere_is_not_taken(
    opened: list[Recorded], inventory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the two readings of a command line ever differ."""
    monkeypatch.setattr(early, "read_named", lambda argv: {"--inventory": inventory, "--host": "b"})
    assert main.run(["history", "--inventory", inventory, "--host", "a", "--json"]) == 0
    assert [(each.asked["host"], each.called, each.closed) for each in opened] == [("b", 0, 1), ("a", 1, 1)]


def test_a_broken_inventory_is_told_once_by_the_command(
    opened: list[Recorded], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("hosts: [\n")
    assert main.run(["history", "--inventory", str(bad)]) == 10
    said = capsys.readouterr().err
    assert said.count("not valid YAML") == 1
    assert "nothing was changed" in said
    assert f"correct {bad}:2, then the same `specops history` again" in " ".join(said.split())
    assert opened == []


def test_nobody_is_asked_for_a_passphrase_before_the_command_wants_its_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(ask, "ask_passphrase", asked.append)
    begun = early.Begun(target=object(), accept_new=False)  # type: ignore[arg-type]
    opening_thread = threading.Thread(target=begun.ask, args=["key"], daemon=True)
    opening_thread.start()
    opening_thread.join(timeout=0.2)
    assert (opening_thread.is_alive(), asked) == (True, [])
    begun.wanted.set()
    opening_thread.join(timeout=10)
    assert asked == ["key"]
