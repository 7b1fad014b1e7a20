"""S7's comparison of words and S4's of acceptance, on answers made by hand."""

from __future__ import annotations

from specops.remote.smoke import s7
from specops.remote.smoke.load import Stream
from specops.remote.sweep.figures import percentile
from specops.remote.sweep.line import format_level
from tests.unit.remote.smoke_bench import START_S, STEP_S, make_bench, make_stream


def answer(ids: list[int], text: str = "some words") -> Stream:
    stream = Stream(prompt="p", asked=len(ids))
    stream.ids, stream.text = ids, text
    return stream


ALONE = [answer(list(range(96))) for _ in range(8)]


def test_one_wrong_token_fails_an_exact_server() -> None:
    others = [answer(list(range(96))) for _ in range(7)]
    wrong = answer([*range(60), 999, *range(61, 96)])
    assert s7.compare(make_bench(), [*others, answer(list(range(96)))], ALONE, [0] * 8).verdict == "pass"
    verdict = s7.compare(make_bench(), [*others, wrong], ALONE, [0] * 8)
    assert verdict.verdict == "fail"
    assert "token 60" in verdict.summary


def test_a_server_with_rounding_may_differ_late_but_not_at_once() -> None:
    bench = make_bench(exact_outputs=False)
    late = [answer([*range(40), *range(500, 556)]) for _ in range(8)]
    at_once = [answer([*range(4), *range(500, 592)]) for _ in range(8)]
    assert s7.compare(bench, late, ALONE, [0] * 8).verdict == "pass"
    assert s7.compare(bench, at_once, ALONE, [0] * 8).verdict == "fail"


def test_garbage_is_named() -> None:
    bench = make_bench(exact_outputs=False)
    for bad, words in (
        (answer(list(range(96)), "  "), "empty"),
        (answer([*range(40), *[7] * 56]), "repeats one token"),
        (answer(list(range(96)), "\ufffd" * 9), "invalid characters"),
    ):
        verdict = s7.compare(bench, [bad, *ALONE[1:]], ALONE, [0] * 8)
        assert verdict.verdict == "fail"
        assert words in verdict.summary


def test_a_missing_token_fails() -> None:
    short = answer(list(range(95)))
    short.asked = 96
    assert s7.compare(make_bench(), [short, *ALONE[1:]], ALONE, [0] * 8).verdict == "fail"


def test_a_crossing_is_when_more_than_the_threshold_run_at_once() -> None:
    early = [make_stream([4] * 10) for _ in range(4)]  # from START_S on, ten steps
    joined = START_S + 5 * STEP_S
    joiners = [make_stream([1] * 10, start=joined), make_stream([1] * 10, start=joined + STEP_S)]
    assert s7.crossing([*early, *joiners], 5) == joined + STEP_S
    assert s7.tokens_at(early[0], joined + 1.5 * STEP_S) == 1 + 4 * 6
    # Joiners that come when the first have ended cross nothing.
    late = [make_stream([1] * 10, start=START_S + 11 * STEP_S) for _ in range(4)]
    assert s7.crossing([*early, *late], 5) is None


def test_the_line_of_a_level_is_exactly_as_agreed() -> None:
    event = {
        "C": 1,
        "requests": 30,
        "ok": 30,
        "throughput": 80.21,
        "per_req": 80.5,
        "latency": {"avg": 6.4, "p50": 6.4, "p99": 7.0},
    }
    assert format_level(event) == (
        "C=  1 | 30 requests | throughput:    80.2 tok/s | per-req:   80.5 tok/s | "
        "latency avg/p50/p99:    6.4/   6.4/   7.0s | ok: 30/30"
    )


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], 50) == 2.0
    assert percentile([float(n) for n in range(1, 101)], 99) == 99.0
    assert percentile([], 99) == 0.0
