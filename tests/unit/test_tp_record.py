"""What a tensor-parallel run makes of its events and of what the ranks say."""

from __future__ import annotations

from typing import Any

from benchmarks.tp_record import phases, ranks_of, summary


def journal(entry: str, at: float, **more: Any) -> dict[str, Any]:
    return {"event": "journal", "entry": {"entry": entry, "at": at, **more}}


def test_steps_and_their_undoing_are_timed() -> None:
    events = [
        journal("starting", 10.0, index=0, name="swap"),
        journal("done", 10.5, index=0),
        journal("starting", 10.5, index=1, name="smoke"),
        journal("failed", 13.5, index=1),
        journal("undoing", 14.0, index=0),
        journal("undone", 16.0, index=0),
    ]
    assert phases(events) == {"swap": 0.5, "smoke": 3.0, "undo: swap": 2.0}


def test_one_rank_that_differs_is_seen_and_no_answer_is_no_agreement() -> None:
    same = [5, "open", 2, 40, 31]
    assert ranks_of({"ranks": [same, same]})["ranks_agree"]
    assert not ranks_of({"ranks": [same, [5, "open", 2, 41, 31]]})["ranks_agree"]
    assert not ranks_of({})["ranks_agree"]


def test_the_summary_is_by_tp_and_one_reading_spoils_it() -> None:
    rows = [
        {"kind": "gate", "tp": 2, "ranks": [[1], [1]], "ranks_agree": True},
        {"kind": "level", "tp": 2, "ranks": [[1], [2]], "ranks_agree": False},
        {"kind": "leftovers", "tp": 2, "leftovers": []},
        {"kind": "gate", "tp": 8, "ranks": [[1]] * 8, "ranks_agree": True},
    ]
    told = summary(rows)
    assert (told["tp 2"]["ranks_agree"], told["tp 2"]["leftovers"]) == (False, [])
    assert (told["tp 8"]["ranks_agree"], told["tp 8"]["leftovers"]) == (True, None)
