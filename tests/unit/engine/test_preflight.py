"""What preflight refuses, from facts as a host sends them."""

from __future__ import annotations

from typing import Any

import pytest

from specops.engine import preflight
from specops.engine.room import check_others
from specops.errors import Locked, Refused, Unfinished
from specops.facts.host import HostFacts, parse_host_facts

SERVER: dict[str, Any] = {
    "pid": 4711,
    "start_ticks": 1,
    "pgid": 4711,
    "uid": 1000,
    "argv": ["python", "-m", "sglang.launch_server"],
    "cwd": "/",
    "members": [4711],
    "healthy": True,
    "reported": {},
}


SYSTEMD = {"kind": "systemd", "name": "sglang.service", "how": "its cgroup"}
HOLDER = {"pid": 9, "user": "bob", "argv": ["nginx"]}


def facts(**changes: Any) -> HostFacts:
    platform = {
        "machine_id": "m",
        "boot_id": "b",
        "hostname": "h",
        "user": "ops",
        "uid": 1000,
        "home": "/home/ops",
        "python": "3.11",
        "container": changes.pop("container", None),
    }
    raw = {
        "platform": platform,
        "install": None,
        "server": None,
        "port": {"free": True, "holder": None},
        "state": {"dir": "/s", "key": "k", **changes.pop("state", {})},
        **changes,
    }
    return parse_host_facts(raw)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"server": {**SERVER, "supervisor": SYSTEMD}}, ["systemd sglang.service", "its cgroup"]),
        ({"server": SERVER, "container": "docker"}, ["container (docker)"]),
        ({"server": {**SERVER, "uid": 0}}, ["uid 0", "ops may not stop"]),
        ({"port": {"free": False, "holder": HOLDER}}, ["pid 9 of bob: nginx"]),
    ],
)
def test_a_server_that_cannot_be_brought_back_is_refused(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(Refused) as refused:
        preflight.require_server(facts(**changes), "box")
    assert all(word in refused.value.message for word in ["box", *words])
    assert refused.value.host_state == "nothing was changed"
    assert refused.value.next_command


def test_a_server_of_our_own_is_fine() -> None:
    found = facts(server=SERVER)
    preflight.require_server(found, "box")
    assert found.server is not None
    assert found.server.supervisor is None


def test_a_held_lock_says_who_and_since_when() -> None:
    owner = {"user": "alice", "host": "desk", "deploy": "d1", "phase": "ready", "since": 1_796_000_000.0}
    with pytest.raises(Locked, match=r"alice@desk .* since 2026-11-30 .* d1, phase ready"):
        preflight.require_free(facts(state={"lock": owner}), "box")


def test_an_unfinished_deploy_asks_for_recover() -> None:
    with pytest.raises(Unfinished) as unfinished:
        preflight.require_free(facts(state={"unfinished": {"id": "d1", "phase": "swap"}}), "box")
    assert unfinished.value.next_command == "specops recover --host box"


def test_a_deploy_that_somebody_else_left_half_way_is_in_the_plan() -> None:
    """A warning and no more: any user of the host can write such a note."""
    left = {"user": "alice", "port": 30001, "deploy": "d7", "folder": "/home/alice/d7", "since": 1.0}
    (check,) = check_others(facts(state={"others": [left]}))
    assert check.verdict == "warn"
    for words in ("deploy d7 by alice on port 30001", "/home/alice/d7", "specops recover"):
        assert words in check.saw
    assert check_others(facts()) == ()


def test_a_server_that_could_not_be_started_again_is_not_stopped_unless_that_is_accepted() -> None:
    found = facts(server={**SERVER, "no_restore": "its working folder is gone: /w"})
    with pytest.raises(Refused, match="its working folder is gone: /w") as caught:
        preflight.require_restorable(found, False, "box")
    assert "--accept-no-restore" in caught.value.next_command
    preflight.require_restorable(found, True, "box")
    preflight.require_restorable(facts(server=SERVER), False, "box")


def test_every_other_server_of_the_install_is_listed() -> None:
    users: list[dict[str, Any]] = [{"pid": pid, "user": "bob", "port": "30001", "argv": []} for pid in (7, 8)]
    checks = check_others(facts(users=users))
    assert [check.verdict for check in checks] == ["warn", "warn"]
    assert "pid 8 of bob on port 30001" in checks[1].saw
