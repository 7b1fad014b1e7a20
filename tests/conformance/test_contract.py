"""The contract of specops.connect.base.Connector, the same for every way to reach a host."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from specops.connect.base import Withheld
from specops.connect.withhold import WithholdingConnector
from specops.errors import AgentError, LinkLost, Locked, Refused
from tests.conformance.conftest import Open, echo

Json = Any


def test_events_come_in_order_and_then_the_value(open_any: Open) -> None:
    events: list[dict[str, Json]] = []
    connector = open_any()
    connector.call("facts", {"events": 500}, on_event=events.append)
    assert [event["message"] for event in events] == [str(index) for index in range(500)]
    assert echo(connector, text="naïve \x1e 😀") == {"text": "naïve \x1e 😀"}
    assert connector.host == "box"


def test_a_large_request_passes_while_the_other_side_talks(open_any: Open) -> None:
    params = {"behave": "noise", "stderr_bytes": 4_000_000, "blob": "b" * 8_000_000}
    assert open_any().call("run", params, deadline_s=60) == "true"


def test_noise_of_a_login_is_not_an_answer(open_any: Open, tmp_path: Path) -> None:
    python = tmp_path / "it's a python"
    noise = """printf 'welcome\\n\\036{"event": "result"} '"""
    python.write_text(f'#!/bin/sh\n{noise}\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    connector = open_any(python=str(python))
    for _ in range(2):
        assert echo(connector, a=1) == {"a": 1}


def test_an_error_of_the_agent_becomes_ours(open_any: Open) -> None:
    error = {
        "code": "locked",
        "message": "ann holds it",
        "detail": {"user": "ann"},
        "host_state": "the old server is up",
        "next_command": "specops attach",
    }
    with pytest.raises(Locked) as caught:
        open_any().call("run", {"behave": "error", "error": error})
    assert caught.value.message == "ann holds it"
    assert (caught.value.host_state, caught.value.next_command) == ("the old server is up", "specops attach")
    assert caught.value.detail == {"user": "ann"}

    with pytest.raises(AgentError) as unnamed:
        open_any().call("run", {"behave": "error", "error": {"code": "novel", "message": "who knows"}})
    assert unnamed.value.code == "novel"


def test_a_death_without_an_answer(open_any: Open) -> None:
    with pytest.raises(LinkLost) as change:
        open_any().call("run", {"behave": "die"})
    assert "goes on by itself" in change.value.host_state
    with pytest.raises(AgentError, match="out of luck"):
        open_any().call("facts", {"behave": "die"})


def test_a_python_that_is_not_there_changed_nothing(open_any: Open) -> None:
    with pytest.raises(Refused) as caught:
        open_any(python="/nowhere/python").call("run", {})
    assert caught.value.host_state == "nothing was changed"
    assert "python" in caught.value.next_command


def test_the_deadline_ends_the_wait(open_any: Open) -> None:
    begun = time.monotonic()
    with pytest.raises(LinkLost, match="within 1 s"):
        open_any().call("run", {"behave": "hang", "seconds": 30}, deadline_s=1)
    assert time.monotonic() - begun < 10


def test_a_dry_run_reads_and_keeps_changes_back(open_any: Open) -> None:
    connector = WithholdingConnector(open_any())
    assert echo(connector, a=1) == {"a": 1}
    assert connector.call("run", {"plan": {}}) == Withheld(verb="run", params={"plan": {}})
    assert [withheld.verb for withheld in connector.withheld] == ["run"]


def test_an_old_python_says_what_it_is(open_any: Open, tmp_path: Path) -> None:
    """Refused, and not a lost link: it dies of the agent's first line otherwise."""
    python = tmp_path / "python3.8"
    lie = "import sys; sys.version_info = (3, 8, 10); sys.version = '3.8.10 (lie)'; exec(sys.argv[4])"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(lie)} "$@"\n')
    python.chmod(0o755)
    with pytest.raises(Refused, match=r"Python 3\.8\.10, the agent needs 3\.10") as caught:
        open_any(python=str(python)).call("run", {"blob": "b" * 1_000_000})
    assert caught.value.host_state == "nothing was changed"
    assert "inventory.yaml" in caught.value.next_command
