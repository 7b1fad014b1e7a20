"""What a program reads: the events as they came, and one line for each other thing."""

from __future__ import annotations

import json

import pytest

from specops.engine.outcome import RolledBack
from specops.errors import Locked
from specops.ui.output import make_output
from tests.unit.ui.story import PLAN, events


def test_the_same_facts_as_lines(capsys: pytest.CaptureFixture[str]) -> None:
    output = make_output(as_json=True)
    output.show("plan", PLAN)
    for event in events():
        output.on_event(event)
    output.outcome(RolledBack(deploy="3f9a", cause="S3 failed", serving="pid 5151"))
    output.error(Locked("ann holds it", next_command="specops attach"))
    out, err = capsys.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    assert err == ""
    assert lines[0] == {"event": "plan", "plan": PLAN}
    assert lines[1:-2] == events()
    assert lines[-2]["how"] == "rolled back"
    assert lines[-2]["exit_code"] == 20
    assert lines[-2]["serving"] == "pid 5151"
    assert lines[-1]["error"] == "Locked"
    assert lines[-1]["exit_code"] == 11
