from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from specops.connect.payload import BOOTSTRAP, agent_zip
from specops.connect.wire import Answer, frame
from specops.remote.context import OpFailed
from specops.remote.wire import Answers


def test_a_line_is_whole_marked_and_plain_ascii() -> None:
    out, into = os.pipe()
    answers = Answers("n0", fd=into)
    answers.value({"text": "ü\n\x1en0 "})
    os.close(into)
    with open(out, "rb") as pipe:
        data = pipe.read()
    assert data.isascii()
    assert data.count(b"\n") == 1
    assert json.loads(data[len(b"\x1en0 ") :])["value"] == {"text": "ü\n\x1en0 "}


def test_a_reader_that_went_away_is_noticed_and_costs_nothing() -> None:
    out, into = os.pipe()
    answers = Answers("n0", fd=into)
    assert not answers.gone()
    os.close(out)
    assert answers.gone()
    answers.error(OpFailed("late", "nobody hears this"))
    os.close(into)


def ask(request: bytes) -> Answer:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", BOOTSTRAP],
        input=request,
        capture_output=True,
        timeout=60,
        check=True,
    )
    answer = Answer("n0")
    list(answer.feed(done.stdout))
    assert done.stderr == b""
    return answer


@pytest.mark.parametrize(
    ("verb", "params", "code"),
    [
        ("fly", {}, "usage"),
        ("history", {}, "usage"),
        ("history", {"port": 1, "python": "/nowhere/python"}, "no_install"),
        ("run", {"plan": {"format": 2}}, "refused"),
    ],
)
def test_the_agent_answers_from_its_zip_and_without_a_traceback(
    verb: str, params: dict[str, object], code: str
) -> None:
    result = ask(frame(agent_zip(), verb, params, "n0")).result
    assert result is not None
    assert result["error"]["code"] == code
    assert "Traceback" not in result["error"]["message"]


def test_a_module_of_the_agent_is_compiled_once() -> None:
    """zipimport compiles it for its file's name, and again to load it: half of an agent's start."""
    counting = (
        "import atexit,sys,zipimport;seen=[];old=zipimport._compile_source;"
        "zipimport._compile_source=lambda path,data:(seen.append(path),old(path,data))[1];"
        "atexit.register(lambda:sys.stderr.write(repr((len(seen),len(set(seen))))));"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", counting + BOOTSTRAP],
        input=frame(agent_zip(), "history", {}, "n0"), capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    compiled, modules = ast.literal_eval(done.stderr.decode())
    assert compiled == modules > 5


def test_a_child_of_another_name_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "agent.zip"
    archive.write_bytes(agent_zip())
    done = subprocess.run(
        [sys.executable, "-B", archive, "child-nap"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "child-nap" in done.stderr
