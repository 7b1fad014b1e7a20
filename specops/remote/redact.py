"""Scrubbing by value: secrets are taken out of whatever leaves the host or is written to a log of ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from . import members, state

Json = Any
MARK = "[redacted]"
SECRET_NAME = re.compile(
    r"(^|[_-])(api[_-]?keys?|keys?|tokens?|secrets?|passw(or)?ds?|passphrase|credentials?|auth)$",
    re.IGNORECASE,
)
NOT_SECRET = frozenset({"key", "keys", "--key", "token", "tokens", "SPECOPS_COOKIE"})
SHORTEST = 4
"""Shorter values would blot out half of every text and protect nothing."""
PLAIN_FROM = 12
"""From this length on a value is replaced inside words too."""

IN_URL = re.compile(r"(://[^/\s:@]*:)([^@/\s]+)(@)")
"""The password of a URL."""
ASSIGNED = re.compile(
    r"""((?:api[_-]?key|token|secret|passw(?:or)?d|passphrase|credential)s?['"]?\s*[:=]\s*)"""
    r"""(?P<quote>\\?['"])((?:(?!(?P=quote)).){4,}?)(?P=quote)""",
    re.IGNORECASE,
)
"""A quoted value after a name like a secret's, as a server prints its arguments: nobody else knows it."""


def scrub_patterns(text: str) -> str:
    """What can be told by its form alone."""
    text = scrub_urls(text) if "://" in text else text
    return ASSIGNED.sub(rf"\g<1>\g<quote>{MARK}\g<quote>", text)


def scrub_urls(text: str) -> str:
    return IN_URL.sub(rf"\g<1>{MARK}\g<3>", text)


def url_passwords(values: Iterable[str]) -> list[str]:
    return [found[1] for value in values for found in IN_URL.findall(value)]


def looks_secret(name: str) -> bool:
    """Whether the value of an environment variable or flag of this name must not be shown.

    By name: `--api-key`, `HF_TOKEN`, `AWS_SECRET_ACCESS_KEY` are; `--max-total-tokens` is a count.
    """
    plain = name.lstrip("-").lower()
    if name in NOT_SECRET or plain.startswith(("max", "num", "chunked", "page")) or plain.endswith("-tokens"):
        return False
    return bool(SECRET_NAME.search(plain))


def argv_secrets(argv: Sequence[str]) -> list[str]:
    """Values of secret-looking flags, as `--flag value` or `--flag=value`."""
    found = []
    flag = ""
    for word in argv:
        name, equals, value = word.partition("=")
        if word.startswith("--") and equals:
            if looks_secret(name):
                found.append(value)
            flag = ""
        elif word.startswith("--"):
            flag = word
        else:
            if flag and looks_secret(flag):
                found.append(word)
            flag = ""
    return [*(value for value in found if value), *url_passwords(argv)]


def env_secrets(env: dict[str, str]) -> list[str]:
    named = [value for name, value in env.items() if value and looks_secret(name)]
    return [*named, *url_passwords(env.values())]


def redact_argv(argv: list[str]) -> list[str]:
    scrub = scrubber(argv_secrets(argv), shortest=1)
    secret = set(argv_secrets(argv))
    known = [MARK if word in secret else scrub(word) if word.startswith("--") else word for word in argv]
    return [scrub_urls(word) for word in known]


def redact_env(env: dict[str, str]) -> dict[str, str]:
    return {name: MARK if looks_secret(name) and value else scrub_urls(value) for name, value in env.items()}


def same_secrets(asked: dict[str, Json], argv: Sequence[str], env: dict[str, str]) -> dict[str, list[str]]:
    """Names of those that have just the value whose keyed hash was asked for; no value leaves the host."""
    if not asked:
        return {"env": [], "flags": []}
    import hmac  # most requests ask for none

    key = bytes.fromhex(str(asked["key"]))

    def same(name: str, value: str | None, wanted: str) -> bool:
        data = f"{name}\0{value}".encode(errors="surrogateescape")
        return value is not None and hmac.compare_digest(hmac.digest(key, data, "sha256").hex(), wanted)

    return {
        "env": [name for name, wanted in asked["env"].items() if same(name, env.get(name), wanted)],
        "flags": [
            flag
            for flag, wanted in asked["flags"].items()
            if same(flag, members.find_option(argv, flag), wanted)
        ],
    }


def scrubber(values: Iterable[str], *, shortest: int = SHORTEST) -> Callable[[str], str]:
    """A function that replaces each of `values` in a text."""
    wanted = sorted({value for value in values if len(value) >= shortest}, key=len, reverse=True)
    if not wanted:
        return lambda text: text
    parts = [
        re.escape(v) if len(v) >= PLAIN_FROM else rf"(?<![A-Za-z0-9]){re.escape(v)}(?![A-Za-z0-9])"
        for v in wanted
    ]
    pattern = re.compile("|".join(parts))
    return lambda text: pattern.sub(MARK, text)


def scrub_json(value: Json, scrub: Callable[[str], str]) -> Json:
    """Every string in `value` scrubbed; keys stay."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, dict):
        return {name: scrub_json(item, scrub) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [scrub_json(item, scrub) for item in value]
    return value


def vault_secrets(vault: Json) -> list[str]:
    """Every value in a vault that must not leave the host: the deploy's secrets and the captured servers'."""
    found: list[str] = []
    if isinstance(vault, dict):
        for name, item in vault.items():
            if name == "secrets" and isinstance(item, dict):
                values = [str(value) for value in item.values() if value]
                found.extend([*values, *url_passwords(values)])
            elif name == "env" and isinstance(item, dict):
                found.extend(env_secrets({k: str(v) for k, v in item.items()}))
            elif name == "argv" and isinstance(item, list):
                found.extend(argv_secrets([str(word) for word in item]))
            else:
                found.extend(vault_secrets(item))
    return found


class VaultScrub:
    """Scrubs by a deploy's vault as it is now: an operation may put a captured server into it at any time."""

    def __init__(self, vault: Path, extra: Iterable[str] = ()) -> None:
        self._vault = vault
        self._extra = list(extra)
        self._seen: object = ()
        self._scrub: Callable[[str], str] = scrubber(self._extra)

    def __call__(self, value: Json) -> Json:
        try:
            now = self._vault.stat()
            seen: object = (now.st_mtime_ns, now.st_size, now.st_ino)
        except OSError:
            seen = None
        if seen != self._seen and seen is not None:
            # A deleted vault leaves what it held known until this process ends.
            self._extra = [*self._extra, *vault_secrets(state.read_json(self._vault))]
            self._scrub = scrubber(self._extra)
        self._seen = seen
        return scrub_json(value, lambda text: scrub_patterns(self._scrub(text)))
