"""How long a load still takes, and whether one that is silent moves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specops.facts.state import parse_state
from specops.remote import activity, loads
from specops.remote.activity import Activity
from specops.remote.loads import Eta, Load

from .servers import await_true

ARGV = ["python", "-m", "sglang.launch_server", "--model-path", "/m", "--speculative-draft-model-path=/d"]
EARLIER = Load(model="/m", draft="/d", load_s=100.0, at=1.0, marks={"weights": 20.0, "kv cache": 60.0})


def test_a_load_that_is_slower_than_the_earlier_one_is_foreseen_to_stay_so() -> None:
    eta = Eta(earlier=EARLIER)
    assert eta.left(10.0, 0) == (90.0, "ready")
    eta.mark("weights", 30.0)
    # half as slow again up to the weights: the 80 s that follow become 120
    assert eta.left(30.0, 0)[0] == pytest.approx(120.0)
    assert eta.left(70.0, 0)[0] == pytest.approx(80.0)
    eta.mark("kv cache", 60.0)
    # it caught up
    assert eta.left(70.0, 0)[0] == pytest.approx(30.0)
    assert eta.left(500.0, 0)[0] == 0.0


def test_without_an_earlier_load_bytes_against_size_tell_when_the_weights_are_read() -> None:
    eta = Eta(weights=1000)
    assert eta.left(1.0, 0) == (None, "weights")
    assert eta.left(2.0, 50) == (None, "weights")
    assert eta.left(6.0, 250)[0] == pytest.approx(15.0)
    assert eta.share_read(250) == 0.25
    assert eta.left(30.0, 1000)[0] is None


def test_the_median_of_the_newest_loads_of_the_same_pair_counts(tmp_path: Path) -> None:
    took = [("/d", 900.0), ("/d", 40.0), ("/d", 50.0), ("/d", 99.0), (None, 9.0)]
    for at, (draft, load_s) in enumerate(took):
        folder = tmp_path / str(at)
        folder.mkdir()
        note = {"cookie": str(at), "model": "/m", "draft": draft, "at": at}
        (folder / "old-server.json").write_text(json.dumps(note))
        loads.keep_load(folder, note, load_s, {"weights": load_s / 10, str(at): 1.0})
    found = loads.find_load(tmp_path, **loads.describe_models(ARGV))
    assert found is not None
    assert (found.load_s, found.marks) == (50.0, {"weights": 5.0})
    state = parse_state({"dir": "", "key": "", "loads": loads.list_newest(tmp_path)})
    assert state.load_s(ARGV) == 99.0
    assert state.load_s(ARGV[:5]) == 9.0
    assert state.load_s(["python", "--model-path", "/other"]) is None


def test_reading_computing_and_standing_still_are_told_apart(tmp_path: Path) -> None:
    data = tmp_path / "weights"
    data.write_bytes(os.urandom(activity.READ_STEP + 4096))
    with open(data, "rb") as file:
        os.fsync(file.fileno())
    code = (
        "import os, sys, time\n"
        "for line in sys.stdin:\n"
        "    if line == 'read\\n':\n"
        f"        fd = os.open({str(data)!r}, os.O_RDONLY)\n"
        "        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)\n"
        f"        os.read(fd, {activity.READ_STEP + 4096})\n"
        "    elif line == 'spin\\n':\n"
        "        until = time.process_time() + 0.5\n"
        "        while time.process_time() < until: pass\n"
        "    print(flush=True)\n"
    )
    seen = Activity(moved_at=0.0)

    def tell(word: str) -> str:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(f"{word}\n")
        child.stdout.readline()
        seen.look([child.pid], force=True)
        return seen.words()

    def is_stopped() -> bool:
        seen.look([child.pid], force=True)
        return seen.stopped == child.pid

    words = [sys.executable, "-c", code]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as child:
        tell("nothing")
        began = time.monotonic()
        tell("nothing")
        assert seen.moved_at < began
        assert "from disk" in tell("read")
        assert seen.moved_at >= began
        said = tell("spin")
        # The second where others leave it little of the processor.
        assert f"process {child.pid} is busy on the CPU" in said or "compute little" in said
        child.send_signal(signal.SIGSTOP)
        await_true(is_stopped)
        assert "is stopped (SIGSTOP)" in seen.words()
        child.kill()
