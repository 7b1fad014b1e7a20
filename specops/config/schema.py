"""Reads a YAML node into a frozen dataclass: the dataclass is the schema, and nothing else is accepted."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from dataclasses import field as dataclass_field
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from specops.config.source import complain, describe, entries, kind_of, nearest

Check = Callable[[Any], str | None]
"""Says what is wrong with a value of the right type, or None."""

RAW = "raw"
Text = Annotated[str, RAW]
"""Any scalar, taken as it is written: `1`, `true` and `0.5` are the texts of an environment variable."""

Flag = str | int | float | bool | tuple[str | int | float, ...]
"""What a server flag can carry. True: the bare flag; False: not passed; a tuple: several words."""

T = TypeVar("T")
NAMES = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def setting(doc: str, *, default: Any = MISSING, check: Check | None = None) -> Any:
    """A documented key. `check` sees values from files and from `--set` alike."""
    metadata = {"doc": doc, "check": check}
    if isinstance(default, dict):
        return dataclass_field(default_factory=lambda: dict(default), metadata=metadata)
    if default is MISSING:
        return dataclass_field(metadata=metadata)
    return dataclass_field(default=default, metadata=metadata)


def keys(cls: type[Any]) -> dict[str, Field[Any]]:
    """The keys that a file may give for this dataclass."""
    return {item.name: item for item in fields(cls) if item.init}


def _hints(cls: type[Any]) -> dict[str, Any]:
    """Worked out once a class: a patch of many releases has hundreds of nodes of one kind."""
    if cls not in _HINTS:
        _HINTS[cls] = get_type_hints(cls, include_extras=True)
    return _HINTS[cls]


_HINTS: dict[type[Any], dict[str, Any]] = {}


def read_node(node: Node, cls: type[T], path: str = "") -> T:
    """Read a mapping into `cls`. `path` is the dotted place in the file, for errors.

    Raises ConfigError (UsageError for what came from the command line), starting with file:line.
    """
    if not isinstance(node, MappingNode):
        raise complain(node, f"{label(path)}expected a mapping of keys, this is {describe(node)}")
    known = keys(cls)
    hints = _hints(cls)
    values: dict[str, Any] = {}
    for key, value in entries(node):
        spot = f"{path}.{key.value}" if path else key.value
        if key.value not in known:
            raise complain(key, f"{spot}: unknown key{nearest(key.value, known)}")
        values[key.value] = checked(value, read_value(value, hints[key.value], spot), known[key.value], spot)
    missing = [
        name
        for name, item in known.items()
        if name not in values and item.default is MISSING and item.default_factory is MISSING
    ]
    if missing:
        raise complain(node, f"{label(path)}missing required key {missing[0]!r}")
    return cls(**values)


def label(path: str) -> str:
    return f"{path}: " if path else ""


def checked(node: Node, value: Any, item: Field[Any], path: str) -> Any:
    check: Check | None = item.metadata.get("check")
    problem = check(value) if check is not None and value is not None else None
    if problem:
        raise complain(node, f"{path}: {problem}")
    return value


def read_value(node: Node, kind: Any, path: str) -> Any:
    """Read one value of a declared type; see `Text` and `Flag` for the two special ones."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated and RAW in args:
        return read_text(node, path)
    if origin in (Union, types.UnionType):
        return read_union(node, args, path)
    if origin is Literal:
        return read_literal(node, args, path)
    if origin is tuple:
        return read_sequence(node, args[0], path)
    if origin is Mapping:
        return read_mapping(node, args[1], path)
    if is_dataclass(kind) and isinstance(kind, type):
        return read_node(node, kind, path)
    if kind not in NAMES:
        raise TypeError(f"{path}: no reader for {kind!r}")
    if not fits(node, kind):
        raise complain(node, f"{path}: expected {NAMES[kind]}, this is {describe(node)}{hint(node, kind)}")
    return scalar(node, kind)


def read_text(node: Node, path: str) -> str:
    if not isinstance(node, ScalarNode) or kind_of(node) == "null":
        raise complain(node, f"{path}: expected text, this is {describe(node)}")
    return str(node.value)


def read_union(node: Node, kinds: tuple[Any, ...], path: str) -> Any:
    if kind_of(node) == "null" and type(None) in kinds:
        return None
    real = [kind for kind in kinds if kind is not type(None)]
    if len(real) == 1:
        return read_value(node, real[0], path)
    for kind in real:
        if get_origin(kind) is tuple and isinstance(node, SequenceNode):
            return read_value(node, kind, path)
        if fits(node, kind):
            return scalar(node, kind)
    names = [NAMES.get(kind, "a list") for kind in real]
    raise complain(node, f"{path}: expected {', '.join(names[:-1])} or {names[-1]}, this is {describe(node)}")


def read_literal(node: Node, words: tuple[Any, ...], path: str) -> Any:
    for word in words:
        if fits(node, type(word)) and scalar(node, type(word)) == word:
            return word
    shown = describe(node)
    given = node.value if isinstance(node, ScalarNode) else ""
    raise complain(
        node, f"{path}: expected one of {', '.join(words)}, this is {shown}{close_to(given, words)}"
    )


def close_to(word: str, words: tuple[Any, ...]) -> str:
    text = nearest(word, [str(item) for item in words])
    return text if "did you mean" in text else ""


def read_sequence(node: Node, kind: Any, path: str) -> tuple[Any, ...]:
    if not isinstance(node, SequenceNode):
        raise complain(node, f"{path}: expected a list, this is {describe(node)}")
    return tuple(read_value(item, kind, f"{path}[{index}]") for index, item in enumerate(node.value))


def read_mapping(node: Node, kind: Any, path: str) -> dict[str, Any]:
    if not isinstance(node, MappingNode):
        raise complain(node, f"{path}: expected a mapping of keys, this is {describe(node)}")
    return {key.value: read_value(value, kind, f"{path}.{key.value}") for key, value in entries(node)}


def fits(node: Node, kind: Any) -> bool:
    """Whether a scalar has just this type; a whole number is also a number."""
    if not isinstance(node, ScalarNode):
        return False
    named = {str: ("str",), int: ("int",), float: ("float", "int"), bool: ("bool",)}
    return kind_of(node) in named.get(kind, ())


def scalar(node: Node, kind: Any) -> Any:
    if kind is str:
        return node.value
    constructor = yaml.constructor.SafeConstructor()
    return kind(constructor.construct_object(node))


def hint(node: Node, kind: Any) -> str:
    if kind is str and isinstance(node, ScalarNode) and kind_of(node) != "null":
        return ": put it in quotes"
    return ""


def at_least(limit: float) -> Check:
    return lambda value: None if value >= limit else f"must be {limit} or more, not {value}"


def above(limit: float) -> Check:
    return lambda value: None if value > limit else f"must be more than {limit}, not {value}"


def within(low: float, high: float) -> Check:
    return lambda value: None if low <= value <= high else f"must be from {low} to {high}, not {value}"
