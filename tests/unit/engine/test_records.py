"""The history on this machine: filled by hosts, read without them, begun again where it is damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specops.cli.main import run
from specops.engine.records import recall, records_path, remember

HISTORY: dict[str, Any] = {
    "deploys": [
        {
            "id": "20261130-045500-3f9a", "kind": "deploy", "how": None, "phase": "ready", "opened_at": 20.0,
            "closed_at": None, "summary": {"release": "0.5.18", "patches": ["harmless"]}, "boot_id": "b1",
            "files": [{"path": "/x/a.py", "before": "1", "after": "2"}], "argv": ["python", "-m", "sglang"],
        }
    ],
    "sweeps": [
        {
            "id": "s1", "started": 30.0, "closed": 40.0, "boot_id": "b1", "ended": "finished",
            "about": {"release": "0.5.18", "server": {"tp_size": 8}},
            "levels": [{"arm": "no-spec", "C": 1, "throughput": 5.0}],
        }
    ],
    "smokes": [{"id": "k1", "started": 10.0, "closed": 12.0, "verdict": "pass", "threshold": 5}],
    "stack": [],
}  # fmt: skip


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_what_a_host_told_is_there_without_it_and_an_end_replaces_a_middle() -> None:
    remember("box", 30000, HISTORY)
    remember("other", 30000, {"deploys": [], "smokes": HISTORY["smokes"]})
    closed = {**HISTORY["deploys"][0], "how": "deployed", "closed_at": 25.0}
    remember("box", 30000, {"deploys": [closed]})
    found = recall("box", None)
    assert [(row["kind"], row["how"]) for row in found] == [
        ("sweep", "finished"), ("deploy", "deployed"), ("smoke", "pass"),
    ]  # fmt: skip
    deploy = found[1]
    assert deploy["patches"] == {"ids": ["harmless"], "files": {"/x/a.py": "2"}}
    assert (deploy["boot_id"], deploy["server_args"]) == ("b1", ["python", "-m", "sglang"])
    assert len(recall(None, None)) == 4
    assert len(recall(None, 1)) == 1
    assert records_path().stat().st_mode & 0o077 == 0


def test_a_damaged_file_is_put_aside(capsys: pytest.CaptureFixture[str]) -> None:
    records_path().parent.mkdir(parents=True)
    records_path().write_bytes(b"this is no database" * 100)
    remember("box", 30000, HISTORY)
    assert run(["history", "--cached", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["records"]
    assert [row["kind"] for row in told] == ["sweep", "deploy", "smoke"]
    assert run(["history", "--cached", "--host", "nobody"]) == 0
    assert "nothing is remembered" in capsys.readouterr().err
