"""Reach: the one instance that a command is about, with the way to it and the place to speak."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specops.config.overrides import Override
    from specops.config.playbook import Playbook
    from specops.config.target import Target
    from specops.connect.base import Connector
    from specops.engine.place import Place
    from specops.ui.output import Output

Json = Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Where:
    """The arguments that say which instance; the same for every command."""

    host: str | None
    instance: str | None
    inventory: str | None
    as_json: bool
    accept_new_host_key: bool


def where(
    host: str | None, instance: str | None, inventory: str | None, as_json: bool, accept_new: bool
) -> Where:
    return Where(
        host=host,
        instance=instance,
        inventory=inventory,
        as_json=as_json,
        accept_new_host_key=accept_new,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    output: Output
    connector: Connector
    place: Place
    playbook: Playbook | None

    def need_playbook(self) -> Playbook:
        """For commands that were given one."""
        if self.playbook is None:
            raise ValueError("reached without a playbook")
        return self.playbook

    def ask(self, verb: str, **params: Json) -> Json:
        """One request about this instance; events go to the output."""
        return self.connector.call(
            verb, {"instance": self.place.reference(), **params}, on_event=self.output.on_event
        )

    def show(self, noun: str, verb: str, **params: Json) -> None:
        self.output.show(noun, self.ask(verb, **params))


@contextmanager
def reach(asked: Where) -> Iterator[Reach]:
    """For commands that need no playbook, unless only it knows the server's port."""
    target = _find(asked)
    instance = target.instance
    with _open(asked, target, None if instance.port else instance.playbook, ()) as reached:
        yield reached


@contextmanager
def reach_with_playbook(asked: Where, name: str | None, overrides: Sequence[Override]) -> Iterator[Reach]:
    target = _find(asked)
    with _open(asked, target, name or target.instance.playbook, overrides) as reached:
        yield reached


def _find(asked: Where) -> Target:
    from specops.config.inventory import load_inventory
    from specops.config.target import resolve_target

    return resolve_target(load_inventory(asked.inventory), asked.host, asked.instance)


@contextmanager
def speaking(as_json: bool) -> Iterator[Output]:
    """For commands that need no host."""
    from specops.ui.output import make_output

    output = make_output(as_json=as_json)
    try:
        yield output
    finally:
        output.close()


def list_overrides(
    settings: Sequence[str] | None, *, threshold: str | None = None, gate: str | None = None
) -> list[Override]:
    from specops.config.overrides import gate_override, parse_override, threshold_override

    overrides = [parse_override(text) for text in settings or ()]
    if threshold is not None:
        overrides.append(threshold_override(threshold))
    if gate is not None:
        overrides.append(gate_override(gate))
    return overrides


@contextmanager
def _open(
    asked: Where, target: Target, playbook_name: str | None, overrides: Sequence[Override]
) -> Iterator[Reach]:
    # First, so that the connection is made while everything else is read.
    with closing(_connect(asked, target)) as connector:
        from specops.config.playbook import load_playbook
        from specops.engine.place import find_place
        from specops.ui.output import make_output

        variables = target.instance.vars
        playbook = None if playbook_name is None else load_playbook(playbook_name, overrides, variables)
        place = find_place(target, playbook)
        output = make_output(as_json=asked.as_json, host=place.host)
        with closing(output):
            yield Reach(output=output, connector=connector, place=place, playbook=playbook)


def _connect(asked: Where, target: Target) -> Connector:
    from specops.cli import early
    from specops.connect.opening import open_connector
    from specops.ui.ask import ask_passphrase

    return early.take(target, accept_new=asked.accept_new_host_key) or open_connector(
        target.host,
        python=target.instance.python,
        accept_new_host_key=asked.accept_new_host_key,
        ask_passphrase=ask_passphrase,
    )


def describe_params(params: Mapping[str, Json]) -> dict[str, Json]:
    """Without what was not given: the agent knows its own defaults."""
    return {name: value for name, value in params.items() if value is not None}
