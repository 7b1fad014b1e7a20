"""The one exit: every way a command can end, as a code and without a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from specops import __version__, errors
from specops.cli import main, patch
from specops.cli.commands import COMMANDS, modules_of
from specops.engine.outcome import Deployed, RolledBack, StillRunning, Unchanged

HEAVY = ("typer", "inspect", "rich", "yaml", "paramiko", "requests", "aiohttp", "asyncio")


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("SPECOPS_DEBUG", raising=False)


def run(*argv: str) -> int:
    return main.run(list(argv))


def ends_in(monkeypatch: pytest.MonkeyPatch, value: object) -> None:
    """Make `patch list` return or raise `value`."""

    def command(folders: object) -> object:
        if isinstance(value, BaseException):
            raise value
        return value

    monkeypatch.setattr(patch, "_patches", command)


def test_help_is_made_of_almost_nothing() -> None:
    code = (
        "import sys; from specops.cli import main; main.run(['--help']); "
        f"print([m for m in {HEAVY} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_says_what_the_commands_say(capsys: pytest.CaptureFixture[str]) -> None:
    """The table is beside the commands, so that none of them is loaded for it."""
    assert run("--help") == 0
    own = capsys.readouterr().out.splitlines()
    assert run("--help", "--help") == 0
    made = capsys.readouterr().out.splitlines()
    assert len(own) == len(made)
    for mine, theirs in zip(own, made, strict=True):
        assert mine.startswith(theirs.removesuffix("..."))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_loads_its_own_module_alone(name: str) -> None:
    assert modules_of(["--json", name, "--host", "x"]) == [COMMANDS[name][0]]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"specops {__version__}\n"


@pytest.mark.parametrize(
    "argv", [("deploy", "--nope"), ("nope",), ("lock", "break"), ("logs", "--lines", "many"), ()]
)
def test_a_wrong_command_line_ends_in_2(argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*argv) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UsageError("u"), 2),
        (errors.ConfigError("c"), 10),
        (errors.Locked("l"), 11),
        (errors.HostUnreachable("h"), 12),
        (errors.Refused("r"), 13),
        (errors.Unfinished("u"), 14),
        (errors.CheckFailed("f"), 16),
        (errors.LinkLost("x"), 22),
        (errors.AgentError("novel", "a"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_every_error_has_its_code(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends_in(monkeypatch, error)
    assert run("patch", "list") == code
    assert "Traceback" not in capsys.readouterr().err


def test_an_internal_error_is_one_line_and_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ends_in(monkeypatch, ZeroDivisionError("of ours"))
    assert run("patch", "list") == 1
    said = capsys.readouterr().err
    assert "ZeroDivisionError: of ours" in said
    assert "Traceback" not in said
    [kept] = (tmp_path / "state/specops/failures").iterdir()
    assert str(kept) in said
    assert "Traceback" in kept.read_text()
    monkeypatch.setenv("SPECOPS_DEBUG", "1")
    assert run("patch", "list") == 1
    assert "Traceback" in capsys.readouterr().err


def test_an_error_under_json_is_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends_in(monkeypatch, errors.Refused("no", host_state="as before", next_command="specops facts"))
    assert run("patch", "list", "--json") == 13
    line = json.loads(capsys.readouterr().out)
    assert (line["error"], line["message"], line["exit_code"]) == ("Refused", "no", 13)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (None, 0),
        (16, 16),
        (Unchanged(serving="x"), 0),
        (Deployed(deploy="d", serving="x"), 0),
        (Deployed(deploy="d", serving="x", inconclusive=("S6",)), 15),
        (RolledBack(deploy="d", cause="c", serving="x"), 20),
        (StillRunning(deploy="d", why="w"), 22),
    ],
)
def test_what_a_command_returns_becomes_a_code(value: object, code: int) -> None:
    assert main.code_of(value) == code


def test_patches_are_listed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("patch", "list", "--json") == 0
    [line] = capsys.readouterr().out.splitlines()
    ids = [each["id"] for each in json.loads(line)["patches"]]
    assert "batch-gate" in ids
    assert run("patch", "show", "batch-gate") == 0
    assert "@@" in capsys.readouterr().err
    assert run("patch", "show", "batch-gat") == 10
    assert "batch-gate" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "argv", "said"),
    [
        ("specops recover", ["deploy", "--host", "lab"], "specops recover --host lab"),
        ("specops recover", ["deploy", "--host=lab"], "specops recover --host=lab"),
        ("specops recover --host x", ["deploy", "--host", "lab"], "specops recover --host x"),
        ("specops recover", ["deploy"], "specops recover"),
        ("ssh-add key", ["deploy", "--host", "lab"], "ssh-add key"),
    ],
)
def test_the_next_command_is_for_the_same_host(command: str, argv: list[str], said: str) -> None:
    assert main.with_host(command, argv) == said
