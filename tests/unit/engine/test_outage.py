"""The outage that a plan foretells is what earlier loads took."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from specops.engine.planner import foresee_outage
from specops.ui.plan import show_plan

from .test_preflight import SERVER, facts

NEW = ("python", "-m", "sglang.launch_server", "--model-path", "/m", "--speculative-draft-model-path", "/d")
LOADS = [
    {"model": "/m", "draft": "/d", "load_s": 130.0},
    {"model": "/old", "draft": None, "load_s": 50.0},
]


@pytest.mark.parametrize(
    ("old", "loads", "words"),
    [
        ("/old", LOADS, ["if it works about 2 min", "about 3 min: the new load and the old one"]),
        ("/other", LOADS, ["if it works about 2 min", "of the old, of unknown length"]),
        ("/old", [], ["of unknown length: none was measured here"]),
    ],
)
def test_a_plan_tells_the_new_load_and_what_a_failure_adds(
    old: str, loads: list[dict[str, object]], words: list[str]
) -> None:
    server = {**SERVER, "argv": ["python", "-m", "sglang.launch_server", f"--model-path={old}"]}
    outage = foresee_outage(facts(server=server, state={"loads": loads}), NEW)
    said = io.StringIO()
    show_plan(
        Console(file=said, width=200, highlight=False),
        {"outage": {"load_s": outage.load_s, "restore_s": outage.restore_s, "replaces": outage.replaces}},
    )
    for part in words:
        assert part in said.getvalue()
