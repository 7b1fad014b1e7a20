"""Secrets of a playbook or an inventory: they travel beside the plan, which only names them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specops.engine.plan import Plan
    from specops.steps.step import Command

Json = Any
SECRET_NAME = re.compile(
    r"(^|[_-])(api[_-]?keys?|keys?|tokens?|secrets?|passw(or)?ds?|passphrase|credentials?|auth)$",
    re.IGNORECASE,
)
"""As the agent has it (specops/remote/redact.py; a test compares them)."""
NOT_SECRET = re.compile(r"(max|num|chunked|page).*|.*-tokens|keys?|tokens?", re.IGNORECASE)
WITH_PASSWORD = re.compile(r"://[^/\s:@]*:[^@/\s]+@")


def hide_secrets(plan: Plan) -> Plan:
    """The plan with `{secret:NAME}` in place of each, in launches and in all that is shown.

    A secret is the value of a variable or flag that is named like one, or a URL with a password.
    """
    found: dict[str, str] = {}
    steps = tuple(replace(step, do=_hide_in(step.do, found)) for step in plan.steps)
    env_changes = {name: _hide(name, value, found) for name, value in plan.env_changes.items()}
    launch = tuple(_hide_in_argv(list(plan.launch), found))
    return replace(plan, steps=steps, env_changes=env_changes, launch=launch, secrets=found)


def _hide_in(command: Command, found: dict[str, str]) -> Command:
    spec = command.args.get("launch")
    if not isinstance(spec, dict) or "argv" not in spec:
        return command
    env: Mapping[str, Json] = spec.get("env") or {}
    hidden = {name: _hide(name, value, found) for name, value in (env.get("set") or {}).items()}
    argv = _hide_in_argv(list(spec["argv"]), found)
    return replace(
        command, args={**command.args, "launch": {**spec, "argv": argv, "env": {**env, "set": hidden}}}
    )


def _hide_in_argv(argv: list[str], found: dict[str, str]) -> list[str]:
    """Values follow their flags as words of their own (specops/steps/launch.py)."""
    flags = ["", *argv[:-1]]
    return [
        word if word.startswith("--") else str(_hide(flag, word, found))
        for flag, word in zip(flags, argv, strict=True)
    ]


def is_secret(name: str, value: str) -> bool:
    """Of a variable or a flag: it is named like one, or its value is a URL with a password."""
    plain = name.lstrip("-")
    named = SECRET_NAME.search(plain) and not NOT_SECRET.fullmatch(plain)
    return bool(value and (named or WITH_PASSWORD.search(value)))


def _hide(name: str, value: str | None, found: dict[str, str]) -> str | None:
    plain = name.lstrip("-")
    if not value or value.startswith("{secret:") or not is_secret(name, value):
        return value
    found[plain] = value
    return f"{{secret:{plain}}}"
