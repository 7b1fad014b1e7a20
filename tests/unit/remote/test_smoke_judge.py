"""Open and closed, judged from streams and from the gate's own word: each alone can lie."""

from __future__ import annotations

import pytest

from specops.remote.smoke.bench import Bench, Level
from specops.remote.smoke.judge import judge_closed, judge_open
from specops.remote.smoke.load import Stream
from specops.remote.smoke.verdict import Verdict
from tests.unit.remote.smoke_bench import make_bench, make_level, make_stream

LONG = 400
OPEN = [4, 3, 4] * 80
CLOSED = [1] * LONG


def judged_open(bench: Bench, level: Level) -> Verdict:
    return judge_open(level, level.windows(2), 2, len(level.streams))


def judged_closed(bench: Bench, level: Level) -> Verdict:
    return judge_closed(level, level.closed_windows(2), 2, len(level.streams))


def six(tokens: list[int], **more: int) -> list[Stream]:
    return [make_stream(tokens, **more) for _ in range(6)]


def test_open_needs_the_rate_and_the_word() -> None:
    bench = make_bench()
    assert (
        judged_open(bench, make_level(bench, [make_stream(OPEN)], state="open", running=1)).verdict == "pass"
    )


def test_open_below_the_floor_fails_whatever_the_gate_says() -> None:
    bench = make_bench()
    verdict = judged_open(bench, make_level(bench, [make_stream(CLOSED)], state="open", running=1))
    assert verdict.verdict == "fail"
    assert "floor" in verdict.summary


def test_open_by_rate_but_closed_by_word_fails() -> None:
    bench = make_bench()
    verdict = judged_open(bench, make_level(bench, [make_stream(OPEN)], state="closed", running=1))
    assert verdict.verdict == "fail"


def test_closed_passes_only_with_one_token_a_step_for_every_request() -> None:
    bench = make_bench()
    assert judged_closed(bench, make_level(bench, six(CLOSED), state="closed", running=6)).verdict == "pass"
    bench = make_bench()
    streams = [*six(CLOSED)[:5], make_stream([1] * 130 + [2] * 135)]
    verdict = judged_closed(bench, make_level(bench, streams, state="closed", running=6))
    assert verdict.verdict == "fail"
    assert "1 of 6" in verdict.summary


def test_a_gate_that_lies_in_its_metric_is_caught_by_the_streams() -> None:
    bench = make_bench()
    verdict = judged_closed(bench, make_level(bench, six([4] * 200), state="closed", running=6))
    assert verdict.verdict == "fail"
    assert "speculate" in verdict.summary


def test_drafting_and_rejecting_everything_is_not_closed() -> None:
    bench = make_bench()
    verdict = judged_closed(bench, make_level(bench, six(CLOSED), state="open", running=6))
    assert verdict.verdict == "fail"
    assert "throws away" in verdict.summary


def test_chunks_that_a_busy_server_merged_are_not_drafts() -> None:
    bench = make_bench()
    merged = [1] * 250 + [2] * 75
    streams = six(merged, verifies=sum(merged))
    assert judged_closed(bench, make_level(bench, streams, state="closed", running=6)).verdict == "pass"


@pytest.mark.parametrize(
    ("state", "running", "why"),
    [
        (None, 6, "does not say"),
        ("closed", None, "not observed"),
        ("closed", 5, "not reached"),
        ("closed", 9, "foreign traffic"),
    ],
)
def test_no_data_is_never_a_pass(state: str | None, running: int | None, why: str) -> None:
    bench = make_bench()
    verdict = judged_closed(bench, make_level(bench, six(CLOSED), state=state, running=running))
    assert verdict.verdict == "inconclusive"
    assert why in verdict.summary


def test_too_short_a_level_is_inconclusive() -> None:
    bench = make_bench()
    verdict = judged_closed(bench, make_level(bench, six([1] * 30), state="closed", running=6))
    assert verdict.verdict == "inconclusive"
