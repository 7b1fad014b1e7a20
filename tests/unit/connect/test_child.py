"""A child program of the zip on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specops.connect import child, payload
from specops.connect.child import run_child
from specops.errors import SpecopsError

PROGRAM = """
import json, sys
def child(argv):
    spec = json.loads(sys.stdin.read()) if argv != ["deaf"] else {}
    print("a library says hello")
    print(json.dumps({"event": "note", "message": argv[0]}), flush=True)
    if argv == ["dies"]:
        sys.stderr.write("no luck\\n")
        return 3
    print(json.dumps({"event": "result", "ok": True, "value": spec}))
    return 0
"""


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "remote").mkdir()
    (tmp_path / "remote/__init__.py").touch()
    (tmp_path / "remote/main.py").write_text(PROGRAM)
    data = payload.build_zip(tmp_path / "remote")
    monkeypatch.setattr(child, "agent_zip", lambda: data)


@pytest.mark.parametrize(("name", "value"), [("says", {"a": "é" * 200_000}), ("deaf", {})])
def test_events_then_the_value(name: str, value: dict[str, Any]) -> None:
    events: list[dict[str, Any]] = []
    assert run_child(name, {"a": "é" * 200_000}, events.append) == value
    assert events == [{"event": "note", "message": name}]


def test_a_child_that_dies_says_why() -> None:
    with pytest.raises(SpecopsError, match=r"exit status 3\): no luck"):
        run_child("dies", {}, lambda event: None)
