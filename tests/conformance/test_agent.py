"""The agent itself, carried both ways: it starts from memory, and its errors are the controller's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from specops.connect.base import READS
from specops.errors import Refused, UsageError
from specops.remote import main as agent_main
from tests.conformance.conftest import Open


@pytest.fixture(autouse=True)
def scripted_agent() -> None:
    """Overrides the one of conftest: here the real one is carried."""


def test_an_install_that_is_not_there_is_refused(open_any: Open, tmp_path: Path) -> None:
    instance = {"state": str(tmp_path), "port": 31404, "python": sys.executable}
    with pytest.raises(Refused, match="has no sglang") as caught:
        open_any().call("history", {"instance": instance})
    assert "nothing was changed" in caught.value.host_state
    assert list(tmp_path.iterdir()) == []


def test_a_verb_that_it_does_not_know(open_any: Open) -> None:
    with pytest.raises(UsageError, match="no verb 'fly'"):
        open_any().call("fly", {})


def test_every_read_of_the_contract_is_a_verb() -> None:
    assert set(agent_main.VERBS) >= READS
