"""The key and the address of `specops smoke --url`."""

from __future__ import annotations

from pathlib import Path

import pytest

from specops.cli.main import run
from specops.cli.proof import KEY_VARIABLE, read_api_key
from specops.errors import UsageError


def test_a_key_of_a_file_reaches_the_load_as_a_variable_and_one_of_ours_is_only_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("secret\n")
    assert read_api_key(None, str(tmp_path / "key")) == (KEY_VARIABLE, {KEY_VARIABLE: "secret"})
    monkeypatch.setenv("MINE", "secret")
    assert read_api_key("MINE", None) == ("MINE", {})
    assert read_api_key(None, None) == (None, {})


@pytest.mark.parametrize("content", ["", "\n", "one\ntwo\n"])
def test_a_file_without_one_key_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(content)
    with pytest.raises(UsageError, match="one line"):
        read_api_key(None, str(tmp_path / "key"))


def test_a_key_that_is_not_there_is_refused_before_anything_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(UsageError, match="NOT_SET"):
        read_api_key("NOT_SET", None)
    with pytest.raises(UsageError, match="No such file"):
        read_api_key(None, str(tmp_path / "missing"))
    with pytest.raises(UsageError, match="exclude"):
        read_api_key("A", "b")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--url", "127.0.0.1:30000"], 2, "an address such as http://"),
        (["--url", "http://127.0.0.1:9"], 12, "nothing answers at http://127.0.0.1:9"),
        (["--url", "http://127.0.0.1:9"], 12, "Type next: curl http://127.0.0.1:9/get_server_info"),
        (["--url", "http://127.0.0.1:9", "--api-key-file", "/not/there"], 2, "Type next: specops smoke"),
        (["--api-key-env", "HOME"], 2, "go with --url"),
    ],
)
def test_what_cannot_be_asked_is_said_without_a_check(
    words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["smoke", *words]) == code
    assert said in " ".join(capsys.readouterr().err.split())
