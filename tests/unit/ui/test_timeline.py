from __future__ import annotations

from typing import Any
from xml.parsers import expat

import pytest

from specops.ui.timeline import draw_svg, view_lines

TIMELINE: dict[str, Any] = {
    "threshold": 5,
    "samples": [
        {"t": 0.0, "running": 1, "state": "open", "queue": 0},
        {"t": 5.0, "running": 10, "state": "closed", "queue": 0},
        {"t": 10.0, "running": None, "state": None, "queue": None},
    ],
    "batch": [[4.0, 6]],
    "switches": [[4.0, "closed"], [8.0, "open"]],
    "spans": [
        {"check": "S1", "C": 1, "start": 0.0, "end": 3.0},
        {"check": "S3", "C": 10, "start": 3.5, "end": 9.0},
    ],
    "victims": [[[1.0, 3.9], [5.0, 1.0], [9.0, 3.8]]],
}


def read_svg(text: str) -> list[tuple[str, str]]:
    """(element, its text) in order. Raises ExpatError where it is not well-formed."""
    found: list[tuple[str, str]] = []
    parser = expat.ParserCreate()
    parser.StartElementHandler = lambda name, attributes: found.append((name, ""))

    def take(data: str) -> None:
        found[-1] = (found[-1][0], found[-1][1] + data)

    parser.CharacterDataHandler = take
    parser.Parse(text, True)
    return [(name, words.strip()) for name, words in found]


def test_the_picture_is_one_svg_with_batch_threshold_states_and_victims() -> None:
    elements = read_svg(draw_svg(TIMELINE, "a <title>"))
    words = [words for name, words in elements if name == "text"]
    assert {"a <title>", "S1", "S3", "T=5"} <= set(words)
    assert [words for name, words in elements if name == "title"] == ["open", "closed", "open"]
    assert sum(name == "polyline" for name, _ in elements) == 2


def test_the_picture_says_how_each_check_ended_and_what_the_first_bad_one_saw() -> None:
    checks = [
        {"id": "S1", "verdict": "pass", "summary": "4.0 tokens a step"},
        {"id": "S3", "verdict": "fail", "summary": "C=6: still <speculating>"},
    ]
    drawn = draw_svg({**TIMELINE, "uninterrupted": [[[1.0, 4.0], [9.0, 4.0]]]}, "t", checks)
    words = [words for name, words in read_svg(drawn) if name == "text"]
    assert {"S1 pass", "S3 fail", "S3 fail: C=6: still <speculating>", "dotted: alone"} <= set(words)
    assert "all 1 checks passed" in draw_svg(TIMELINE, "t", checks[:1])


def test_the_terminal_view_has_its_columns_under_each_other() -> None:
    checks, batch, gate, rates, seconds = view_lines(TIMELINE, width=20)
    assert checks.index("S1") == 8
    assert checks.index("S3") == 8 + 7
    assert gate[8:28] == "────────████████────"
    assert batch[8 + 10] == "█"
    assert rates[8 + 2] == "█"
    assert seconds.endswith("10 s")


@pytest.mark.parametrize("timeline", [{}, {"threshold": 5, "samples": [], "spans": [], "victims": []}])
def test_a_run_that_saw_nothing_gives_an_empty_picture(timeline: dict[str, Any]) -> None:
    read_svg(draw_svg(timeline))
    assert view_lines(timeline) == []
