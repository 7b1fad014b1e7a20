from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from specops.remote import lock
from specops.remote.context import OpFailed
from specops.remote.state import Instance


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return Instance(port=30000, root=tmp_path, machine=tmp_path)


def test_it_says_who_and_is_free_with_its_last_holder(instance: Instance) -> None:
    held = lock.take(instance)
    held.answer_in_thread(
        lambda: lock.describe_owner(pid=os.getpid(), deploy="d1", phase="launch", since=0.0, why="deploy")
    )
    with pytest.raises(
        OpFailed, match=f"pid {os.getpid()}.* since 1970-01-01 .*deploy d1, in launch"
    ) as error:
        lock.take(instance)
    assert error.value.code == "locked"
    held.close()
    assert lock.read_owner(instance) is None
    lock.take(instance).close()


def test_a_killed_holder_holds_nothing_and_a_silent_one_is_still_a_holder(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "ANSWER_S", 0.1)
    code = (
        "import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(bytes.fromhex(sys.argv[1])); "
        "s.listen(); print('bound', flush=True); time.sleep(60)"
    )
    name = lock.address(instance).encode().hex()
    child = subprocess.Popen([sys.executable, "-c", code, name], stdout=subprocess.PIPE)
    assert child.stdout
    assert child.stdout.readline() == b"bound\n"
    assert lock.read_owner(instance) == {}
    with pytest.raises(OpFailed, match="does not answer"):
        lock.take(instance)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    lock.take(instance).close()


def test_instances_do_not_hold_each_other(tmp_path: Path) -> None:
    first = Instance(port=30000, root=tmp_path, machine=tmp_path)
    others = [
        Instance(port=30001, root=tmp_path, machine=tmp_path),
        Instance(port=30000, root=tmp_path / "other", machine=tmp_path),
    ]
    held = [lock.take(instance) for instance in (first, *others)]
    for instance in (first, *others):
        with pytest.raises(OpFailed):
            lock.take(instance)
    for one in held:
        one.close()
