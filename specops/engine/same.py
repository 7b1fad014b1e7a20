"""Whether the server that runs is the one that would be launched: its secrets too, and without reading them.

The question holds a keyed hash of each secret that is wanted, by a key that is made for this question and
kept nowhere; the host answers which of them its server has.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specops.engine.secrets import is_secret

if TYPE_CHECKING:
    from specops.facts.server import Server


def ask_for_secrets(env: Mapping[str, str], args: Mapping[str, Any]) -> dict[str, Any]:
    """Of a launch: variables, and flags without dashes. Empty where none of them is secret."""
    key = secrets.token_bytes(32)
    wanted = {
        "env": {name: _digest(key, name, value) for name, value in env.items() if is_secret(name, value)},
        "flags": {
            f"--{flag}": _digest(key, f"--{flag}", value)
            for flag, value in args.items()
            if isinstance(value, str) and is_secret(flag, value)
        },
    }
    return {"key": key.hex(), **wanted} if any(wanted.values()) else {}


def _digest(key: bytes, name: str, value: str) -> str:
    """As the agent does (specops/remote/redact.py; a test compares them)."""
    return hmac.digest(key, f"{name}\0{value}".encode(errors="surrogateescape"), "sha256").hex()


def has_variable(server: Server, name: str, value: str) -> bool:
    return name in server.same_env if is_secret(name, value) else server.env.get(name) == value


def has_arguments(server: Server, argv: Sequence[str]) -> bool:
    """Interpreters aside: a virtual environment's has several names."""
    has, wants = server.argv[1:], argv[1:]
    if len(has) != len(wants):
        return False
    flags = ("", *wants[:-1])
    return all(
        flag in server.same_flags if is_secret(flag, want) and not want.startswith("--") else now == want
        for flag, want, now in zip(flags, wants, has, strict=True)
    )
