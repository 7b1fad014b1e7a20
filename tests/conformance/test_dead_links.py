"""A link that dies in silence, in each phase: noticed, and what can have changed by then is said."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from specops.connect import dial, link, watchdog
from specops.connect.identity import OfferKeys
from specops.connect.ssh import SshConnector
from specops.engine.deploy import run_plan
from specops.engine.outcome import StillRunning
from specops.engine.plan import Outage, Plan
from specops.errors import HostUnreachable, LinkLost
from specops.steps.step import Command, Inert, Step
from tests.conformance.sshd import Relay, Sshd

pytestmark = pytest.mark.sshd
RELAY_PORT = 31406
FULL_PORT = 31407
NOTICED_S = 15
OpenSsh = Callable[..., SshConnector]
PLAN = Plan(
    id="20261130-000000-aaaa",
    kind="deploy",
    host="box",
    instance={"port": 31408},
    facts_digest="",
    summary={},
    steps=(Step(name="look", phase="check", do=Command(op="files.check"), undo=Inert("only reads")),),
    outage=Outage(load_s=None, restore_s=None, replaces=None),
)


def test_each_clock_is_within_15_s_as_shipped() -> None:
    for clock_s in (dial.CONNECT_S, link.BANNER_S, link.AUTH_S, link.CHANNEL_S):
        assert clock_s <= NOTICED_S
    # Asked every so often, looked at twice a second.
    assert watchdog.SILENT_AT_MOST_S + watchdog.ASK_EVERY_S + 0.5 <= NOTICED_S


@pytest.fixture(autouse=True)
def short_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same clocks, wound for less: what is tested is that each of them is looked at."""
    for module, name in (
        (dial, "CONNECT_S"),
        (link, "CONNECT_S"),
        (link, "BANNER_S"),
        (link, "AUTH_S"),
        (link, "CHANNEL_S"),
    ):
        monkeypatch.setattr(module, name, 3)
    monkeypatch.setattr(watchdog, "ASK_EVERY_S", 0.5)
    monkeypatch.setattr(watchdog, "SILENT_AT_MOST_S", 3.0)


@pytest.fixture(autouse=True)
def in_time(short_clocks: None) -> Iterator[None]:
    """Far more than clocks of 3 s take on a busy machine, and less than any of the defaults behind them."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < 2 * NOTICED_S


@pytest.fixture
def relay(sshd: Sshd) -> Iterator[Relay]:
    relay = Relay(RELAY_PORT, sshd.port)
    yield relay
    relay.close()


@pytest.fixture
def through(open_ssh: OpenSsh, sshd: Sshd, relay: Relay, tmp_path: Path) -> SshConnector:
    """A connector whose link goes through the relay."""
    known = tmp_path / "known_hosts"
    known.write_text(sshd.known_line(port=RELAY_PORT))
    return open_ssh(port=RELAY_PORT, known_hosts=known)


def test_connect(open_ssh: OpenSsh) -> None:
    """A host that drops every SYN: a listener whose queue is full."""
    with socket.socket() as listener, contextlib.ExitStack() as waiting:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", FULL_PORT))
        listener.listen(0)
        for _ in range(3):
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", FULL_PORT))
        with pytest.raises(HostUnreachable, match="no answer within") as caught:
            open_ssh(port=FULL_PORT).call("run", {})
    assert caught.value.host_state == "nothing was changed"


def test_banner(through: SshConnector, relay: Relay) -> None:
    relay.silent.set()
    with pytest.raises(HostUnreachable, match="cannot be reached"):
        through.call("run", {})


def test_key_exchange(through: SshConnector, relay: Relay) -> None:
    relay.silent_after = 100
    with pytest.raises(HostUnreachable, match="cannot be reached"):
        through.call("run", {})


def test_authentication(through: SshConnector, relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    offer = OfferKeys._offer

    def die_first(*args: Any) -> bool:
        relay.silent.set()
        return offer(*args)

    monkeypatch.setattr(OfferKeys, "_offer", die_first)
    with pytest.raises(HostUnreachable) as caught:
        through.call("run", {})
    assert caught.value.host_state == "nothing was changed"


def test_between_calls(through: SshConnector, relay: Relay) -> None:
    """The old link is given up, and the host is tried once more."""
    through.call("facts", {})
    relay.silent.set()
    with pytest.raises(HostUnreachable):
        through.call("run", {})
    relay.silent.clear()
    assert through.call("facts", {"a": 1})


def test_during_the_upload(through: SshConnector, relay: Relay) -> None:
    relay.silent_after = 1_000_000
    with pytest.raises(HostUnreachable, match="before the request was sent") as caught:
        through.call("run", {"blob": "b" * 8_000_000})
    assert caught.value.host_state == "nothing was changed"


def test_during_a_download(through: SshConnector, relay: Relay) -> None:
    seen = 0

    def die_later(event: dict[str, Any]) -> None:
        nonlocal seen
        seen += 1
        if seen == 1000:
            relay.silent.set()

    with pytest.raises(LinkLost, match="the link broke") as caught:
        through.call("evidence", {"events": 200_000}, on_event=die_later)
    assert caught.value.host_state == "`evidence` only reads: nothing was changed by it"
    assert 1000 <= seen < 200_000


@pytest.mark.parametrize("verb", ["run", "follow"])
def test_while_following(through: SshConnector, relay: Relay, verb: str) -> None:
    with pytest.raises(LinkLost) as caught:
        through.call(verb, {"behave": "hang", "seconds": 60}, on_event=lambda event: relay.silent.set())
    assert ("goes on by itself" in caught.value.host_state) == (verb == "run")


def test_an_agent_that_is_killed_leaves_the_outcome_to_the_journal(through: SshConnector) -> None:
    """paramiko says exit status -1 for it, as for a lost link: the host is asked again, by `follow`."""
    outcome = run_plan(PLAN, through, lambda event: None, secrets={"behave": "killed"})
    assert isinstance(outcome, StillRunning)
    assert outcome.deploy == PLAN.id


def test_a_host_that_cannot_be_reached_again_ends_in_22(through: SshConnector, relay: Relay) -> None:
    through.call("facts", {})
    call = through.call

    def call_and_pull_the_plug(verb: str, *args: Any, **more: Any) -> Any:
        try:
            return call(verb, *args, **more)
        finally:
            relay.close()

    through.call = call_and_pull_the_plug  # type: ignore[method-assign]
    with pytest.raises(LinkLost, match="cannot be reached again") as caught:
        run_plan(PLAN, through, lambda event: None, secrets={"behave": "killed"})
    assert caught.value.exit_code == 22
    assert PLAN.id in caught.value.host_state
    assert caught.value.next_command == "specops attach --host box"
