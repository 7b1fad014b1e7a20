"""Prompts: texts for smoke and sweep from a JSONL file on this machine."""

from __future__ import annotations

import json
from pathlib import Path

from specops.errors import ConfigError

KEYS = ("prompt", "text")
TURNS = ("conversations", "messages")
"""ShareGPT's name and OpenAI's; a prompt is what the human says first."""
HUMANS = ("human", "user")


def load_prompts(path: str | Path) -> tuple[str, ...]:
    """One prompt a line: a JSON string, an object with `prompt` or `text`, or a conversation as in ShareGPT
    (`conversations` of {from, value}) or OpenAI (`messages` of {role, content}). Empty lines are passed over.

    Raises ConfigError with file:line.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise ConfigError(f"{path}:1: no such prompts file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}:1: the prompts cannot be read: {error}") from None
    prompts = tuple(
        read_prompt(line, f"{path}:{number}") for number, line in enumerate(lines, start=1) if line.strip()
    )
    if not prompts:
        raise ConfigError(f"{path}:1: holds no prompt")
    return prompts


def read_prompt(line: str, place: str) -> str:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{place}: not JSON: {error}") from None
    if isinstance(value, dict):
        value = next((value[key] for key in KEYS if key in value), None) or _first_words(value)
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(
            f"{place}: a prompt is a JSON string, or an object with 'prompt', 'text', 'conversations' "
            "or 'messages'"
        )
    return value


def _first_words(value: dict[str, object]) -> str | None:
    turns = next((value[key] for key in TURNS if isinstance(value.get(key), list)), [])
    for turn in turns if isinstance(turns, list) else ():
        if isinstance(turn, dict) and (turn.get("from") or turn.get("role")) in HUMANS:
            words = turn.get("value") or turn.get("content")
            return words if isinstance(words, str) else None
    return None
