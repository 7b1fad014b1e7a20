"""Every reason to doubt a level is named, and a level without one is not doubted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specops.remote.sweep.answer import Answer
from specops.remote.sweep.figures import Span
from specops.remote.sweep.load import Loaded
from specops.remote.sweep.spec import Run, parse_sweep
from specops.remote.sweep.taints import Seen, find_taints, find_unknown

SPEC = parse_sweep({"url": "u", "levels": [10], "graphs": True, "max_running": 16}, ("p",))
RUN = SPEC.runs[0]
SEEN = Seen(
    running=[10, 10, 9], queue=[0, 0, 0], states=["open"], retracted=0, graphs_off=False, finished_by_others=0
)
CALM = {"lag_s": {"avg": 0.001, "p99": 0.01}, "cpu_share": 0.4}


def answered(**meta: Any) -> Answer:
    answer = Answer(100, exact=True)
    for count in range(1, 101):
        answer.feed(b'data: {"meta_info": {"completion_tokens": %d}}\n\n' % count, count / 100)
    answer.finish(1.0)
    answer.meta |= meta
    return answer


def loaded(*answers: Answer, **more: Any) -> Loaded:
    return Loaded(answers=list(answers or (answered(),)), **{"span": Span(0.0, 1.0), **more})


def test_a_healthy_level_has_no_taint_and_nothing_unknown() -> None:
    assert find_taints(SPEC, RUN, loaded(), SEEN, CALM) == []
    assert find_unknown(SEEN) == []


@pytest.mark.parametrize(
    ("what", "seen", "client", "word"),
    [
        (loaded(answered(total_retractions=2)), {}, {}, "retraction: 2"),
        (loaded(), {"retracted": 1}, {}, "retraction: 1"),
        (loaded(), {"queue": [0, 3, 3]}, {}, "queueing: 2 waited (the server runs at most 16)"),
        (loaded(), {"graphs_off": True}, {}, "graph off"),
        (loaded(answered(), Answer(2, exact=True)), {}, {}, "errors: 1"),
        (loaded(), {"finished_by_others": 4}, {}, "foreign traffic: 4 requests of others ended"),
        (loaded(), {"running": [10, 12, 10]}, {}, "foreign traffic: 12 ran"),
        (loaded(), {"running": [8, 8, 10]}, {}, "observed batch 8"),
        (loaded(span=None), {}, {}, "no steady window: the first request ended before the last one began"),
        (loaded(span=Span(0.0, 0.75)), {}, {}, "short window: 8 chunks a stream in 0.8 s"),
        (loaded(span=Span(1.0, 4.0)), {}, {}, "short window: 0 chunks a stream in 3.0 s"),
        (loaded(ended="hung"), {}, {}, "hung"),
        (loaded(), {}, {"cpu_share": 0.95}, "client_limited"),
        (loaded(), {}, {"lag_s": {"avg": 0.02, "p99": 0.02}}, "client_limited"),
        (loaded(), {}, {"lag_s": {"avg": 0.001, "p99": 0.06}}, "client_limited"),
    ],
)
def test_each_doubt_is_named(what: Loaded, seen: dict[str, Any], client: dict[str, Any], word: str) -> None:
    assert find_taints(SPEC, RUN, what, replace(SEEN, **seen), CALM | client) == [word]


def test_a_rate_that_was_not_reached_is_told_and_its_batch_and_queue_are_its_own_business() -> None:
    run = Run(arm=RUN.arm, level=4, repeat=1, number=0, rate=9.0)
    seen = replace(SEEN, running=[1, 2, 2], queue=[3, 3, 3])
    assert find_taints(SPEC, run, loaded(), seen, CALM) == []
    assert find_taints(SPEC, run, loaded(unsent=3), seen, CALM) == [
        "rate not reached: 3 arrivals found 4 running"
    ]


def test_requests_that_pile_up_are_told_and_those_that_come_and_go_are_not() -> None:
    run = Run(arm=RUN.arm, level=256, repeat=1, number=0, rate=10.0)

    def load(stay_s: float, **more: Any) -> Loaded:
        """Ten a second for 10 s; the later ones stay longer where `stay_s` is above 0."""
        answers = []
        for number in range(100):
            answer = Answer(1, exact=True)
            answer.sent = number / 10
            answer.feed(b'data: {"meta_info": {"completion_tokens": 1}}\n\n', answer.sent + 0.1)
            answer.finish(answer.sent + 0.5 + stay_s * number / 100)
            answers.append(answer)
        return Loaded(answers=answers, span=Span(0.5, 10.0), **more)

    assert find_taints(SPEC, run, load(0.0), SEEN, CALM) == []
    assert find_taints(SPEC, run, load(8.0), SEEN, CALM) == ["overloaded: from 5 to 47 requests in flight"]
    assert "ramp in the window" in find_taints(SPEC, run, load(0.0, ramped=True), SEEN, CALM)[0]


def test_what_nobody_saw_is_said_and_not_taken_for_a_good_sign() -> None:
    blind = replace(SEEN, running=[], finished_by_others=None)
    assert find_taints(SPEC, RUN, loaded(), blind, CALM) == []
    assert find_unknown(blind) == ["running batch", "others' requests"]
