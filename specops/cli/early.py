"""The way to the host, begun before the command line is read in full.

The library that reads it takes as long to load as half a connection takes to be made. What is wrong with a
command line, an inventory or a host is not said here: the command finds it again, and says it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specops.errors import SpecopsError

if TYPE_CHECKING:
    from specops.config.target import Target
    from specops.connect.base import Connector

COMMANDS = ("facts", "status", "history", "logs", "plan", "deploy", "rollback", "attach", "recover", "abort")
"""Those that do nothing without their host."""
NAMED = ("--host", "--instance", "--inventory")
ACCEPT = "--accept-new-host-key"
HELP = ("-h", "--help")


@dataclass(kw_only=True, slots=True)
class Begun:
    """A connection that is being made for a command that has not asked for it yet."""

    target: Target
    accept_new: bool
    connector: Connector | None = None
    wanted: threading.Event = field(default_factory=threading.Event)

    def ask(self, path: str) -> str | None:
        """Nobody is asked for a key's passphrase by a command that turns out to be none."""
        from specops.ui.ask import ask_passphrase

        self.wanted.wait()
        return ask_passphrase(path)


_begun: list[Begun] = []
"""At most one: a program runs one command."""


def begin(argv: Sequence[str]) -> None:
    """Start to connect, where `argv` says enough to know to whom."""
    if not argv or argv[0] not in COMMANDS or set(HELP) & set(argv):
        return
    from specops.config.inventory import load_inventory
    from specops.config.target import resolve_target
    from specops.connect.opening import open_connector

    given = read_named(argv)
    try:
        inventory = load_inventory(given.get("--inventory"))
        target = resolve_target(inventory, given.get("--host"), given.get("--instance"))
        begun = Begun(target=target, accept_new=ACCEPT in argv)
        begun.connector = open_connector(
            target.host,
            python=target.instance.python,
            accept_new_host_key=begun.accept_new,
            ask_passphrase=begun.ask,
        )
    except (SpecopsError, OSError):
        return
    _begun.append(begun)


def take(target: Target, *, accept_new: bool) -> Connector | None:
    """What was begun, if it leads to where the command wants to go; it is the caller's to close then."""
    if not _begun or (_begun[0].target, _begun[0].accept_new) != (target, accept_new):
        return None
    begun = _begun.pop()
    begun.wanted.set()
    return begun.connector


def end() -> None:
    """Close what no command has taken."""
    while _begun:
        connector = _begun.pop().connector
        if connector is not None:
            connector.close()


def read_named(argv: Sequence[str]) -> dict[str, str]:
    """The options of NAMED, as `--x VALUE` or `--x=VALUE`; the last one counts."""
    found = {}
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name in NAMED and (equals or following):
            found[name] = value if equals else following
    return found
