"""Overrides: `--set server.mem_fraction_static=0.8`, `--threshold 5`; typed and checked like the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from yaml.nodes import MappingNode, Node

from specops.config.source import argument_key, argument_node, complain, describe, kind_of
from specops.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class Override:
    path: tuple[str, ...]
    value: str
    """As typed; read as YAML, so `0.8` is a number and `[1, 2]` a list."""
    label: str
    """The argument as it was typed, for errors."""


def parse_override(text: str) -> Override:
    """`a.b=value` as given to `--set`. Raises UsageError."""
    label = f"--set {text}"
    place, equals, value = text.partition("=")
    path = tuple(place.strip().split("."))
    if not equals or not all(path):
        raise UsageError(f"{label}: write --set key.key=value, such as --set server.mem_fraction_static=0.8")
    return Override(path=path, value=value.strip(), label=label)


def threshold_override(text: str | int) -> Override:
    """`--threshold N`; whether N is a threshold is checked with the playbook's other keys."""
    return Override(path=("gate", "threshold"), value=str(text), label=f"--threshold {text}")


def gate_override(kind: str) -> Override:
    return Override(path=("gate", "kind"), value=kind, label=f"--gate {kind}")


def apply_overrides(root: MappingNode, overrides: Sequence[Override]) -> None:
    """Put the values into the tree in place; later ones win. Wrong keys show when the tree is read."""
    for override in overrides:
        place: Node = root
        for depth, word in enumerate(override.path[:-1]):
            place = step_into(place, word, override, depth)
        if not isinstance(place, MappingNode):
            where = ".".join(override.path[:-1])
            raise complain(
                argument_node(override.value, override.label), f"{where} is {describe(place)}, it has no keys"
            )
        key = argument_key(override.path[-1], override.label)
        value = argument_node(override.value, override.label)
        place.value = [pair for pair in place.value if pair[0].value != key.value] + [(key, value)]


def step_into(place: Node, word: str, override: Override, depth: int) -> Node:
    if not isinstance(place, MappingNode):
        where = ".".join(override.path[:depth])
        raise UsageError(f"{override.label}: {where} is {describe(place)}, it has no keys")
    found: list[Node] = [value for key, value in place.value if key.value == word]
    if found and kind_of(found[-1]) != "null":
        return found[-1]
    key = argument_key(word, override.label)
    empty = MappingNode("tag:yaml.org,2002:map", [], key.start_mark, key.end_mark)
    place.value = [pair for pair in place.value if pair[0].value != word] + [(key, empty)]
    return empty
