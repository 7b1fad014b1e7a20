"""Sweeps of a real server: three arms by launches, three by one load, and one that ends in a crash."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from specops.lab.lab import LabState
from specops.sweep.runs import Sweep, read_sweep
from tests.e2e.command import Ran, act_at, interrupt_at, specops
from tests.e2e.server import is_speculating, one_token, owner_of_port
from tests.e2e.trees import digest_tree

AT = ("--host", "lab")
LEVELS = (1, 2, 8, 12)
"""None just above the threshold of 5: whenever an answer ends there, the gate may open for a moment."""
MEASURE = ("--levels", ",".join(map(str, LEVELS)), "--window", "4")
PATIENT = ("--set", "smoke.budget_s=1800")
"""However busy the machine is: the checks wait for steps."""
DEADLINE_S = 2700
MOSTLY = 0.8
"""Of the looks at the gate in a window: one may have been on its way when the window began."""


@pytest.fixture
def data(tmp_path: Path) -> dict[str, str]:
    return {"XDG_DATA_HOME": str(tmp_path / "data"), "XDG_STATE_HOME": str(tmp_path / "state")}


def run(data: dict[str, str], *words: str) -> Ran:
    return specops(*words, "--json", env=data, deadline_s=DEADLINE_S)


def kept_of(ran: Ran) -> tuple[dict[str, Any], Sweep]:
    told = ran.events("sweep")[-1]["sweep"]
    return told, read_sweep(told["kept in"])


def test_three_arms_by_launches_and_what_served_before_serves_again(
    lab: LabState, data: dict[str, str], tmp_path: Path
) -> None:
    package, old = Path(lab.package), owner_of_port(lab.port)
    before = digest_tree(package)
    prom = tmp_path / "specops.prom"
    ran = run(
        data, "sweep", *AT, "--arms", "no-spec,always-on,gated", *MEASURE, "--repeats", "3", "--yes",
        "--prometheus", str(prom), *PATIENT,
    )  # fmt: skip
    assert ran.code == 0, ran.err + ran.out[-3000:]
    told, sweep = kept_of(ran)
    assert sweep.ended == "finished"
    assert sweep.arms == ("no-spec", "always-on", "gated")
    for arm in sweep.arms:
        assert {c: len(levels) for c, levels in sweep.at(arm).items()} == dict.fromkeys(LEVELS, 3), arm
    order = list(
        dict.fromkeys((level.arm, level.repeat > 2) for level in sweep.levels if level.arm != "gated")
    )
    assert order == [("no-spec", False), ("always-on", False), ("always-on", True), ("no-spec", True)]
    assert all(level.raw["tokens_per_verify"] > 1.5 for level in sweep.levels if level.arm == "always-on")
    for level in sweep.levels:
        if level.arm == "gated":
            state = "open" if level.at_once <= 5 else "closed"
            assert level.raw["gate"][state] > MOSTLY, level.raw
    arms = {arm["name"]: arm for arm in sweep.about["arms"]}
    assert {arm["max_running"] for arm in arms.values()} == {16}
    assert arms["gated"]["threshold"] == 5
    assert "EAGLE3" in str(arms["always-on"]["server"])
    assert told["verdict"]
    assert prom.read_text().count('arm="gated"') >= len(LEVELS)
    assert_shown(data, told)
    assert owner_of_port(lab.port) not in (None, old), "another process of the same server"
    assert digest_tree(package) == before
    assert is_speculating(lab.port)


def await_unlocked() -> bool:
    """Whether nobody holds the instance any more, within a minute."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if specops("lock", "show", *AT, "--json").events("lock")[0]["lock"] is None:
            return True
    return False


def test_it_starts_after_a_passed_smoke_test_only_and_ctrl_c_keeps_finished_levels(
    lab: LabState, data: dict[str, str]
) -> None:
    """The lab's own server speculates at every batch size: no gate."""
    never = run(data, "sweep", *AT, "--set", "gate.kind=native", "--levels", "1")
    assert never.code == 16, never.err + never.out[-2000:]
    assert never.events("smoke")[0]["smoke"]["verdict"] == "fail"
    assert not never.events("level")

    many = ("--levels", "1,2", "--repeats", "99", "--window", "1", "--set", "smoke.checks=[S0, S1]")
    cut = interrupt_at("level", "sweep", *AT, *many, *PATIENT, env=data)
    assert cut.code == 130, cut.err + cut.out[-2000:]
    assert cut.events("smoke")[0]["smoke"]["verdict"] == "pass", "a sweep begins with it"
    told, sweep = kept_of(cut)
    assert len(sweep.levels) == len(cut.events("level")) >= 1
    assert sweep.ended == told["ended"] == "interrupted by Ctrl-C"
    assert Path(told["page"]).read_text().startswith("<!doctype html>")
    assert await_unlocked(), "the load on the host ended with its sweep"


def assert_shown(data: dict[str, str], told: dict[str, Any]) -> None:
    """What is made of a kept sweep: page, table, decision, history."""
    report = run(data, "report", told["kept in"], "--csv")
    assert report.code == 0, report.err
    made = report.events("report")[0]["report"]
    assert "<svg" in Path(made["page"]).read_text()
    assert len(Path(made["csv"]).read_text().splitlines()) == 1 + 9 * len(LEVELS)
    tuned = run(data, "tune", told["kept in"])
    assert tuned.code == 0, tuned.err
    assert [gain["C"] for gain in tuned.events("tuned")[0]["tuned"]["gains"]] == list(LEVELS)
    history = run(data, "history", *AT)
    assert history.events("history")[0]["history"]["sweeps"], "each visit is on the host"
    cached = run(data, "history", "--cached")
    assert "sweep" in cached.out


def test_one_load_is_tuned_and_a_crash_in_a_level_is_named_and_taken_back(
    lab: LabState, data: dict[str, str], tmp_path: Path
) -> None:
    before = digest_tree(Path(lab.package))
    book = tmp_path / "lab.yaml"
    shutil.copy(Path(__file__).parents[2] / "playbooks" / "lab.yaml", book)
    gate = ("--playbook", str(book), "--threshold", "5", *PATIENT)
    done = run(data, "deploy", *AT, *gate, "--gate", "batch-gate", "--yes", "--accept-unproven")
    assert done.code == 0, done.err + done.out[-3000:]

    ran = run(data, "sweep", *AT, *gate, "--live", "--arms", "always-on,always-off,gated", *MEASURE)
    assert ran.code == 0, ran.err + ran.out[-3000:]
    _, sweep = kept_of(ran)
    assert sweep.arms == ("always-on", "always-off", "gated")
    for level in sweep.levels:
        opened = level.arm == "always-on" or (level.arm == "gated" and level.at_once <= 5)
        assert level.raw["gate"]["open" if opened else "closed"] > MOSTLY, level.raw

    tune = run(data, "tune", *AT, "--playbook", str(book), *PATIENT, "--live", *MEASURE, "--repeats", "2")
    assert tune.code == 0, tune.err + tune.out[-3000:]
    assert tune.events("tuned")[0]["tuned"]["kind"] in ("at", "none up to", "never")

    crash = kill_at_level(lab, data, *gate)
    assert crash.code == 16, crash.err + crash.out[-3000:]
    assert "Traceback" not in crash.err
    told, sweep = kept_of(crash)
    assert sweep.levels
    assert "the server died" in told["ended"]
    assert told["cause"]
    assert crash.entries("closed")[-1]["how"] == "deployed", "the rollback that was asked for"
    assert digest_tree(Path(lab.package)) == before
    assert one_token(lab.port)


def kill_at_level(lab: LabState, data: dict[str, str], *gate: str) -> Ran:
    """A scheduler that dies as one does that was killed for lack of memory, in the middle of a level."""

    def kill(process: subprocess.Popen[str]) -> None:
        launcher = owner_of_port(lab.port)
        children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
        titles = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
        os.kill(
            next(int(pid) for pid in children if titles[pid].startswith(b"sglang::sched")), signal.SIGKILL
        )

    return act_at(
        "level", kill, "sweep", *AT, *gate, "--levels", "2", "--repeats", "50", "--window", "2", "--rollback",
        env=data, deadline_s=DEADLINE_S,
    )  # fmt: skip
