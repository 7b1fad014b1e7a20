"""What an operator reads, at 80 columns and without a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from specops.engine.outcome import Deployed, Outcome, RollbackFailed, RolledBack, StillRunning
from specops.errors import Refused
from specops.ui.human import Human
from specops.ui.plan import launch_lines
from specops.ui.terminal import breaks
from tests.unit.ui.story import PLAN, events

ROLLED_BACK = RolledBack(deploy="3f9a", cause="S3 failed", serving="the old server (pid 5151) on port 30000")


def shown(width: int = 80) -> tuple[Human, io.StringIO]:
    text = io.StringIO()
    console = Console(file=text, width=width, highlight=False, emoji=False, markup=False)
    return Human(console, host="lab"), text


def test_a_deploy_that_is_rolled_back_reads_from_top_to_bottom() -> None:
    human, text = shown()
    for event in events():
        human.on_event(event)
    human.outcome(ROLLED_BACK)
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("\x1b" in line for line in lines)
    assert [line for line in lines if "check 3 files ok (0.4 s)" in line]
    assert [line for line in lines if "undo     stop the old server (pid 4242) ok" in line]
    assert sum("S3 fail " in line for line in lines) == 1, "told once, though two events say it"
    assert lines[-1] == "serving now: the old server (pid 5151) on port 30000"
    steps = [line for line in lines if line[:2].isdigit() and line[2] == ":"]
    assert all(line[9:12] == "lab" for line in steps)


def test_the_next_deploy_of_a_sweep_does_not_show_the_checks_of_the_one_before() -> None:
    human, text = shown()
    for event in events():
        human.on_event(event)
    human.on_event({"event": "smoke", "smoke": {"kept": {"json": "/first.json", "picture": "/first.svg"}}})
    human.outcome(ROLLED_BACK)
    first = text.getvalue()
    human.on_event({"event": "journal", "entry": {"entry": "opened", "kind": "rollback", "plan_id": "77"}})
    human.outcome(Deployed(deploy="77", serving="the old server (pid 5151) on port 30000"))
    second = text.getvalue()[len(first) :]
    assert "/first.json" in first
    assert "S3" in first
    assert "/first.json" not in second
    assert "S3" not in second


def test_a_load_without_a_terminal_says_little() -> None:
    human, text = shown()
    for second in range(0, 60):
        progress = {"event": "progress", "milestone": "loading weights", "elapsed_s": second}
        human.on_event({**progress, "fraction": second / 60, "eta_s": None})
    assert 5 <= len(text.getvalue().splitlines()) <= 7


def test_a_plan_shows_what_the_operator_says_yes_to() -> None:
    human, text = shown()
    human.show("plan", PLAN)
    said = text.getvalue()
    for part in (
        "+new",
        "-old",
        "sglang.launch_server \\\n",
        "--model-path 'a b'",
        "pid 4242 (/models/tiny)",
        "about 3 min: the new load and the old one",
        "- GONE",
        "+ SGLANG_X=1",
        "A rollback would bring back",
        "threshold + 5",
        "8 smoke    prove both sides of the threshold",
    ):
        assert part in said


def test_a_launch_command_can_be_pasted() -> None:
    lines = launch_lines(["python", "-m", "x", "--flag", "--json", '{"a": 1}', "--last", "it's"])
    assert [line.strip() for line in lines] == [
        "python -m x \\",
        "--flag \\",
        "--json '{\"a\": 1}' \\",
        "--last 'it'\"'\"'s'",
    ]


@pytest.mark.parametrize(
    ("outcome", "part"),
    [
        (Deployed(deploy="3f9a", serving="pid 1"), "deployed (3f9a)"),
        (Deployed(deploy="3f9a", serving="pid 1", inconclusive=("S6",)), "without a verdict of S6"),
        (
            RollbackFailed(deploy="3f9a", cause="S3", failures=("launch: no",), serving="nothing"),
            "specops recover --host lab",
        ),
        (StillRunning(deploy="3f9a", why="detached"), "specops attach 3f9a --host lab"),
    ],
)
def test_every_ending_says_what_is_true_and_what_to_type(outcome: Outcome, part: str) -> None:
    human, text = shown()
    human.outcome(outcome)
    assert part in text.getvalue()


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one two three", ["one two ", "three"]),
        ("one\ntwo", ["one\n", "two"]),
        ("see /a/very/long/path here", ["see ", "/a/very/long/path ", "here"]),
        ("/a/very/long/path", ["/a/very/long/path"]),
        ("", [""]),
    ],
)
def test_lines_break_between_words_and_never_within_one(text: str, lines: list[str]) -> None:
    ends = [*breaks(text, 8), len(text)]
    assert [text[start:end] for start, end in zip([0, *ends], ends, strict=False)] == lines


def test_an_error_has_its_three_parts_and_a_diff() -> None:
    human, text = shown()
    error = Refused(
        "x.py drifted", host_state="nothing was changed", next_command="specops facts " + "y" * 90
    )
    error.detail = {"diff": "-a\n+b\n"}
    human.error(error)
    assert text.getvalue().splitlines() == [
        "specops: x.py drifted",
        "-a",
        "+b",
        "On the host: nothing was changed",
        "Type next:",
        "  specops facts " + "y" * 90,
    ]


def test_a_rebase_is_shown_with_its_combined_diff_and_what_to_type_next() -> None:
    from specops.ui.patches import show_rebase

    said = io.StringIO()
    value = {
        "id": "batch-gate-at-1", "host": "lab", "version": "0.5.12.post1+acme", "release": "0.5.12.post1",
        "folder": "/p/batch-gate-at-1", "proof": "unproven", "moved": 1, "hunks": 2, "added": ["gate.py"],
        "files": [{"path": "w.py", "diff": "@@@ -1,1 -2,1 +2,2 @@@\n  a\n++b\n"}],
    }  # fmt: skip
    show_rebase(Console(file=said, width=100), value)
    text = said.getvalue()
    for words in ("the hunks of 0.5.12.post1 in this SGLang 0.5.12.post1+acme", "    ++b", "2, 1 of them"):
        assert words in text
    assert text.rstrip().endswith("specops plan --host lab --accept-unproven")
