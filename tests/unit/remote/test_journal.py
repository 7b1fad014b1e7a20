from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specops.remote import journal
from specops.remote.journal import Journal, read, replay

UNDO = {"op": "files.restore", "args": {}}


def entries(*kinds: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"seq": n, "at": 0.0, **kind} for n, kind in enumerate(kinds, 1)]


def starting(index: int, undo: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"entry": "starting", "index": index, "name": f"s{index}", "phase": "swap", "undo": undo or UNDO}


def done(index: int) -> dict[str, Any]:
    return {"entry": "done", "index": index, "facts": {}}


OPENED = {"entry": "opened", "plan_id": "d", "kind": "deploy", "steps": 2}


def test_a_torn_line_is_not_read_and_the_next_writer_cuts_it(tmp_path: Path) -> None:
    Journal(tmp_path).append(OPENED)
    with open(tmp_path / "journal.jsonl", "ab") as file:
        file.write(b'{"seq": 2, "entry": "starti')
    assert [entry["seq"] for entry in read(tmp_path)] == [1]
    assert Journal(tmp_path).append(starting(0))["seq"] == 2
    assert [entry["entry"] for entry in read(tmp_path)] == ["opened", "starting"]
    assert (tmp_path / "journal.jsonl").stat().st_mode & 0o777 == 0o600


def test_nothing_after_a_line_that_is_no_entry_counts(tmp_path: Path) -> None:
    Journal(tmp_path).append(OPENED)
    with open(tmp_path / "journal.jsonl", "ab") as file:
        file.write(b'\0\0\0\0\n{"seq": 3, "entry": "closed", "how": "deployed"}\n')
    assert not replay(read(tmp_path)).ended


def test_what_is_owed_is_last_first_and_less_what_was_undone() -> None:
    now = replay(
        entries(OPENED, starting(0), done(0), starting(1), {"entry": "settling", "cause": {"id": "x"}})
    )
    assert (now.owed, now.in_step(), now.phase) == ([1, 0], "s1", "settle")
    now = replay(
        entries(OPENED, starting(0), starting(1), {"entry": "settling"}, {"entry": "undone", "index": 1})
    )
    assert now.owed == [0]


@pytest.mark.parametrize(
    ("after", "committed"),
    [
        ([starting(0), done(0), starting(1)], False),
        ([starting(0), done(0), starting(1), done(1)], True),
        ([starting(0), done(0), starting(1), done(1), {"entry": "settling", "cause": {}}], False),
        ([starting(0), done(0), starting(1, {"irreversible": "it deletes"})], True),
    ],
)
def test_all_done_and_no_way_back_begun_is_deployed(after: list[dict[str, Any]], committed: bool) -> None:
    assert replay(entries(OPENED, *after)).committed is committed


def test_a_failed_rollback_stays_owed_and_a_retry_opens_it_again() -> None:
    closed = {"entry": "closed", "how": journal.FAILED_ROLLBACK}
    told = [OPENED, starting(0), {"entry": "settling", "cause": {"id": "first"}}, closed]
    assert not replay(entries(*told)).ended
    again = replay(entries(*told, {"entry": "settling", "cause": {"id": "second"}}))
    assert (again.closed, again.cause) == (None, {"id": "first"})
    assert replay(entries(*told, {"entry": "closed", "how": "rolled back"})).ended
