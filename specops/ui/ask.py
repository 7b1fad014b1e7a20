"""Questions to the operator; none where nobody is there to answer."""

from __future__ import annotations

import getpass
import sys

from specops.errors import UsageError


def somebody_is_there() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str, *, assume_yes: bool) -> bool:
    """Raises UsageError where the question cannot be asked: silence is not a yes."""
    if assume_yes:
        return True
    if not somebody_is_there():
        raise UsageError(
            f'nobody is here to answer "{question}": stdin is not a terminal',
            host_state="nothing was changed",
            next_command="repeat with --yes",
        )
    return _answer(f"{question} [y/N] ").strip().lower() in {"y", "yes"}


def ask_passphrase(path: str) -> str | None:
    """For an encrypted key; None where nobody is there."""
    if not somebody_is_there():
        return None
    try:
        return getpass.getpass(f"passphrase of {path}: ")
    except EOFError:
        return None


def _answer(prompt: str) -> str:
    sys.stderr.write(prompt)
    sys.stderr.flush()
    try:
        return sys.stdin.readline()
    except UnicodeDecodeError:
        return ""
