from __future__ import annotations

import json
from pathlib import Path

import pytest

from specops.remote.redact import VaultScrub, looks_secret, redact_argv, redact_env, scrubber


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("--api-key", True),
        ("--admin-api-key", True),
        ("HF_TOKEN", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("DB_PASSWORD", True),
        ("--max-total-tokens", False),
        ("--num-continuous-decode-steps", False),
        ("SPECOPS_COOKIE", False),
        ("PATH", False),
        ("--tokenizer-path", False),
        ("--ssl-keyfile", False),
    ],
)
def test_names(name: str, secret: bool) -> None:
    assert looks_secret(name) is secret


def test_argv_and_env_keep_all_but_the_values() -> None:
    argv = ["python", "-m", "x", "--api-key", "k1", "--admin-api-key=k2", "--port", "30000"]
    assert redact_argv(argv) == [
        "python",
        "-m",
        "x",
        "--api-key",
        "[redacted]",
        "--admin-api-key=[redacted]",
        "--port",
        "30000",
    ]
    assert redact_env({"HF_TOKEN": "t", "HOME": "/root"}) == {"HF_TOKEN": "[redacted]", "HOME": "/root"}


def test_a_short_value_is_a_word_and_a_long_one_is_anywhere() -> None:
    scrub = scrubber(["1234", "sk-0123456789ab", "no"])
    assert scrub("api_key='1234' in sha 91234f, no sk-0123456789ab!") == (
        "api_key='[redacted]' in sha 91234f, no [redacted]!"
    )


def test_a_server_captured_meanwhile_is_known_and_stays_known(tmp_path: Path) -> None:
    vault = tmp_path / "vault.json"
    scrub = VaultScrub(vault)
    assert scrub({"log": ["key hunter22"]}) == {"log": ["key hunter22"]}
    old = {"argv": ["--api-key", "hunter22"], "env": {"HF_TOKEN": "hf_abcdef", "HOME": "/root"}}
    vault.write_text(json.dumps({"secrets": {}, "old_server": old}))
    assert scrub({"log": ["key hunter22", "hf_abcdef", "/root"]}) == {
        "log": ["key [redacted]", "[redacted]", "/root"]
    }
    vault.unlink()
    assert scrub("hunter22") == "[redacted]"


@pytest.mark.parametrize(
    ("text", "scrubbed"),
    [
        ("ServerArgs(api_key='planted-5', port=1)", "ServerArgs(api_key='[redacted]', port=1)"),
        ('{"hf_token": "planted-5"}', '{"hf_token": "[redacted]"}'),
        ("through http://ann:planted-5@proxy:3128/x", "through http://ann:[redacted]@proxy:3128/x"),
        ("tokenizer_path='/m', max_total_tokens=12345", "tokenizer_path='/m', max_total_tokens=12345"),
    ],
)
def test_what_only_its_form_tells(text: str, scrubbed: str, tmp_path: Path) -> None:
    """A secret that a server makes or reads by itself: it is in no vault."""
    assert VaultScrub(tmp_path / "none.json")(text) == scrubbed


def test_a_url_in_a_command_line_or_an_environment_keeps_its_place() -> None:
    url = "https://ann:planted-4@proxy:3128"
    assert redact_argv(["python", "--proxy", url]) == [
        "python",
        "--proxy",
        "https://ann:[redacted]@proxy:3128",
    ]
    assert redact_env({"HTTPS_PROXY": url}) == {"HTTPS_PROXY": "https://ann:[redacted]@proxy:3128"}
