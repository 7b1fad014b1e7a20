"""Ctrl-C lets go of a deploy; only a second one, and a yes, take it back."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from specops.cli.follow import Follower
from specops.cli.reach import Reach
from specops.connect.base import OnEvent
from specops.engine.outcome import Deployed, Outcome, RolledBack, StillRunning
from specops.engine.place import Place
from specops.ui import ask
from specops.ui.output import JsonLines
from tests.unit.ui.story import journal

Json = Any
PLACE = Place(host="box", port=30000, python="/p", state="~/s", env={})
OPENED = {**journal("opened", 0, plan_id="3f9a", kind="deploy", by={}), "seq": 1}


class InterruptedHost:
    """Starts to tell, then the operator presses Ctrl-C; followed again, it was rolled back."""

    host = "box"

    def __init__(self) -> None:
        self.verbs: list[str] = []

    def call(
        self,
        verb: str,
        params: Mapping[str, Json],
        *,
        on_event: OnEvent | None = None,
        deadline_s: float | None = None,
    ) -> Json:
        self.verbs.append(verb)
        if verb == "abort":
            return {"deploy": "3f9a", "told": True}
        assert on_event is not None
        on_event(dict(OPENED))
        if len(self.verbs) == 1:
            raise KeyboardInterrupt
        assert params["deploy"] == "3f9a"
        return {"deploy": "3f9a", "how": "rolled back", "cause": {"message": "aborted"}, "serving": None}

    def close(self) -> None: ...


def follow(monkeypatch: pytest.MonkeyPatch, *, presses: int, answer: bool) -> tuple[Outcome, list[str]]:
    """`presses` is how often Ctrl-C is pressed by somebody at a terminal; 0: nobody is there."""

    def sleep(seconds: float) -> None:
        if presses > 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys.stdin, "isatty", lambda: presses > 0)
    monkeypatch.setattr("time.sleep", sleep)
    monkeypatch.setattr(ask, "confirm", lambda question, *, assume_yes: answer)
    host = InterruptedHost()
    at = Reach(output=JsonLines(), connector=host, place=PLACE, playbook=None)
    return Follower(at).attach(None), host.verbs


@pytest.mark.parametrize("presses", [0, 1])
def test_once_detaches(monkeypatch: pytest.MonkeyPatch, presses: int) -> None:
    outcome, verbs = follow(monkeypatch, presses=presses, answer=True)
    assert outcome == StillRunning(deploy="3f9a", why="detached by Ctrl-C")
    assert verbs == ["follow"]


def test_twice_and_no_detaches(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, verbs = follow(monkeypatch, presses=2, answer=False)
    assert isinstance(outcome, StillRunning)
    assert verbs == ["follow"]


def test_twice_and_yes_takes_it_back_and_shows_nothing_twice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome, verbs = follow(monkeypatch, presses=2, answer=True)
    assert isinstance(outcome, RolledBack)
    assert verbs == ["follow", "abort", "follow"]
    assert capsys.readouterr().out.count('"opened"') == 1


class ProvenHost(InterruptedHost):
    """Tells what a smoke test saw."""

    def call(
        self,
        verb: str,
        params: Mapping[str, Json],
        *,
        on_event: OnEvent | None = None,
        deadline_s: float | None = None,
    ) -> Json:
        assert on_event is not None
        on_event(
            {"event": "smoke", "deploy": "3f9a", "smoke": {"verdict": "pass", "checks": [], "timeline": {}}}
        )
        return {"deploy": "3f9a", "how": "deployed", "serving": None}


@pytest.mark.parametrize("writable", [True, False])
def test_what_a_deploy_proved_is_kept_here_with_its_picture(
    writable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = tmp_path / "data"
    if not writable:
        base.write_text("no folder")
    monkeypatch.setenv("XDG_DATA_HOME", str(base))
    at = Reach(output=JsonLines(), connector=ProvenHost(), place=PLACE, playbook=None)
    assert isinstance(Follower(at).attach("3f9a"), Deployed)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (smoke,) = [line["smoke"] for line in lines if line["event"] == "smoke"]
    if writable:
        assert Path(smoke["kept"]["json"]).name == "smoke-box-3f9a.json"
        assert "<svg" in Path(smoke["kept"]["picture"]).read_text()
    else:
        assert "cannot be kept" in lines[0]["message"]
