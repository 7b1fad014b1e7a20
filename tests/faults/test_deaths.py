"""What dies, and who goes on: controller, agent, guardian, both; who holds the lock then."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from specops.remote import journal, lock, smoke_op
from specops.remote.state import user_name

from . import disks, ops
from .box import LIMIT_S, Answer, Box, step
from .cuts import guardian_pid, room


def until(holds: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


class Waiting:
    """A deploy that swapped its files and now waits in its last step."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.release = box.folder / "release"
        wait = step("await ready", "ready", "files.wait", {"until": str(self.release)})
        self.pid, self.out = box.start(
            "run", {"plan": box.plan([*box.steps(), wait]), "blobs": box.blobs()}, ops.add
        )
        until(lambda: journal.replay_deploy(box.deploy_dir()).in_step() == "await ready")

    @property
    def agent(self) -> int:
        owner = lock.read_owner(self.box.instance)
        assert owner
        return int(owner["pid"])

    def finish(self) -> Answer:
        answer = self.box.finish(self.pid, self.out)
        self.box.await_free()
        return answer


@pytest.fixture
def box() -> Iterator[Box]:
    with room() as folder:
        yield Box(folder / "box")


@pytest.fixture
def waiting(box: Box) -> Iterator[Waiting]:
    deploy = Waiting(box)
    yield deploy
    deploy.release.touch()
    box.await_free()


def test_a_killed_controller_changes_nothing_and_another_follows(box: Box, waiting: Waiting) -> None:
    os.kill(waiting.pid, signal.SIGKILL)
    os.waitpid(waiting.pid, 0)
    os.close(waiting.out)
    pid, out = box.start("follow", {"from_seq": 3})
    waiting.release.touch()
    answer = box.finish(pid, out)
    assert answer.value["how"] == "deployed"
    assert answer.value["serving"] == {"line": "the new server"}
    assert [event["seq"] for event in answer.events] == list(range(4, 4 + len(answer.events)))
    assert box.is_new()


def test_a_second_run_is_told_who_holds_the_lock(box: Box, waiting: Waiting) -> None:
    error = box.run(box.plan(id="d2"), why="impatience").error
    assert error["code"] == "locked"
    owner = box.ask("lock_show").value["lock"]
    assert error["detail"] == owner
    assert (owner["deploy"], owner["phase"], owner["pid"]) == ("d1", "ready", waiting.agent)
    assert owner["user"] in error["message"]
    assert not box.deploy_dir("d2").exists()


def test_an_abort_settles_with_its_reason(box: Box, waiting: Waiting) -> None:
    assert box.ask("abort", {"reason": "wrong model"}).value["told"]
    value = waiting.finish().value
    assert (value["how"], value["cause"]["id"], value["cause"]["message"]) == (
        "rolled back",
        "aborted",
        "wrong model",
    )
    assert box.is_old()
    assert box.leftovers() == []
    assert box.ask("abort", {"reason": "again"}).error["code"] == "no_deploy"


def test_a_broken_lock_makes_its_holder_settle(box: Box, waiting: Waiting) -> None:
    assert box.ask("lock_break", {}).error["code"] == "usage"
    assert box.ask("lock_break", {"reason": "lunch"}).value["broken"] == "told"
    assert waiting.finish().value["how"] == "rolled back"
    assert box.ask("lock_break", {"reason": "lunch"}).value == {"broken": "nothing held", "owner": None}


def test_a_lock_broken_by_force_leaves_the_guardian_to_settle(box: Box, waiting: Waiting) -> None:
    assert box.ask("lock_break", {"reason": "hangs", "force": True}).value["broken"] == "killed"
    value = waiting.finish().value
    assert value["how"] == "rolled back"
    assert value["cause"]["message"] == "the agent died (signal 9) during await ready"
    assert box.is_old()


def test_a_dead_guardian_leaves_an_agent_that_holds_the_lock(box: Box, waiting: Waiting) -> None:
    os.kill(guardian_pid(box), signal.SIGKILL)
    agent = waiting.agent
    assert box.run(box.plan(id="d2")).error["detail"]["pid"] == agent
    waiting.release.touch()
    assert waiting.finish().value["how"] == "deployed"
    assert box.is_new()


def test_when_both_died_the_next_run_is_refused_until_recovered(box: Box, waiting: Waiting) -> None:
    agent = waiting.agent
    os.kill(guardian_pid(box), signal.SIGKILL)
    os.kill(agent, signal.SIGKILL)
    assert waiting.finish().error["code"] == "unfinished"
    error = box.run(box.plan(id="d2")).error
    assert (error["code"], error["detail"]) == ("unfinished", {"id": "d1", "phase": "ready"})
    assert box.ask("status").value["state"]["unfinished"] == {"id": "d1", "phase": "ready"}
    recovered = box.ask("recover")
    assert recovered.value["how"] == "rolled back"
    assert "died during await ready" in recovered.value["cause"]["message"]
    assert box.is_old()
    assert box.ask("recover").value["how"] == "nothing to recover"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_is_told_whose_it_is(box: Box, waiting: Waiting) -> None:
    def as_nobody() -> None:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    agent = waiting.agent
    for force in (False, True):
        error = box.ask("lock_break", {"reason": "mine", "force": force}, as_nobody).error
        assert error["code"] == "not_permitted"
        assert f"belongs to {user_name()} (uid 0, pid {agent})" in error["message"]
    waiting.release.touch()
    assert waiting.finish().value["how"] == "deployed"


def test_two_ports_of_one_install_do_not_wait_for_each_other(box: Box, waiting: Waiting) -> None:
    beside = {**box.ref, "port": box.port + 1}
    plan = box.plan([step("check", "check", "files.check", {"files": []})], id="d2", instance=beside)
    assert box.run(plan).value["how"] == "deployed"
    waiting.release.touch()
    assert waiting.finish().value["how"] == "deployed"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_is_kept_out_whatever_their_state_folder(box: Box, waiting: Waiting) -> None:
    theirs = box.folder / "theirs"
    theirs.mkdir()
    os.chown(theirs, disks.SOMEBODY, disks.SOMEBODY)
    plan = box.plan(id="d2", instance={**box.ref, "state": str(theirs)})
    error = box.run(plan, disks.dropping(disks.SOMEBODY)).error
    assert error["code"] == "locked"
    assert f"held by {user_name()}@" in error["message"]
    assert not list(theirs.rglob("deploys/*"))
    waiting.release.touch()
    assert waiting.finish().value["how"] == "deployed"


@pytest.mark.parametrize("by", ["a broken lock", "a reader that went away"])
def test_a_request_that_only_holds_the_lock_ends(box: Box, by: str) -> None:
    def add_naps() -> None:
        smoke: Any = smoke_op
        smoke.run_standalone = lambda params, emit, gone: time.sleep(60)

    pid, out = box.start("smoke", {}, add_naps)
    until(lambda: lock.read_owner(box.instance))
    assert box.run().error["detail"]["why"] == "smoke"
    if by == "a broken lock":
        assert box.ask("lock_break", {"reason": "lunch"}).value["broken"] == "told"
        assert box.finish(pid, out).error["code"] == "aborted"
    else:
        os.close(out)
        until(lambda: os.waitpid(pid, os.WNOHANG)[0])
    box.await_free()


def test_what_the_dead_agent_ran_dies_with_it(box: Box) -> None:
    note = box.folder / "helper"
    plan = box.plan([step("smoke", "smoke", "files.start_helper", {"note": str(note)})])
    pid, out = box.start("run", {"plan": plan}, ops.add)
    until(lambda: note.exists() and note.read_text())
    owner = lock.read_owner(box.instance)
    assert owner
    os.kill(owner["pid"], signal.SIGKILL)
    assert box.finish(pid, out).value["how"] == "refused"
    until(lambda: not Path(f"/proc/{note.read_text()}").exists())


def test_a_server_never_inherits_the_lock(box: Box) -> None:
    plan = box.plan([step("launch", "launch", "files.start_child", {})])
    assert box.run(plan, ops.add).value["how"] == "deployed"
    server = journal.replay_deploy(box.deploy_dir()).done[0]["pid"]
    try:
        box.await_free()
        assert os.getsid(server) == server
    finally:
        os.kill(server, signal.SIGKILL)


def test_a_full_disk_does_not_stop_the_way_back(box: Box) -> None:
    plan = box.plan([*box.steps(), step("fill", "ready", "files.fill_disk", {})])
    value = box.run(plan, ops.add).value
    assert (value["how"], box.is_old()) == ("rolled back", True)
