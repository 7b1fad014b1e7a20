"""YAML as nodes that know where they stand, so that every complaint can name its file and line."""

from __future__ import annotations

import contextlib
import difflib
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from specops.errors import ConfigError, SpecopsError, UsageError

KINDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
    "seq": "a list",
    "map": "a mapping",
    "timestamp": "a date",
}
FAST = getattr(yaml, "CSafeLoader", None)
"""libyaml's parser, seventeen times as fast; not every build of PyYAML has it."""
COMMAND_LINE = "\0"
"""Marks a node that was typed as an argument and stands in no file; the argument's text follows it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A whole file as nodes."""

    path: Path
    root: MappingNode


def read_source(path: Path, *, what: str) -> Source:
    """Read one YAML file. `what` names it in errors ("inventory", "playbook").

    Raises ConfigError when it is missing, unreadable, not YAML, or not a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}:1: no such {what} file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}:1: the {what} cannot be read: {error}") from None
    root = parse_yaml(text, str(path))
    if root is None:
        raise ConfigError(f"{path}:1: the {what} is empty")
    if not isinstance(root, MappingNode):
        raise complain(root, f"the {what} must be a mapping of keys, this is {describe(root)}")
    return Source(path=path, root=root)


def parse_yaml(text: str, name: str) -> Node | None:
    """Compose one document; `name` is what errors call it. Aliases are resolved by PyYAML."""
    try:
        if FAST is not None:
            with contextlib.suppress(yaml.YAMLError):  # what is wrong is said in the other one's words
                return _compose(FAST, text, name)
        return _compose(yaml.SafeLoader, text, name)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise ConfigError(f"{name}:{line}: not valid YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}:1: not valid YAML: {error}") from None


class _Named(io.StringIO):
    """Text with the name that marks give: the C parser takes it from what it reads."""

    name = ""


def _compose(kind: Any, text: str, name: str) -> Node | None:
    stream = _Named(text)
    stream.name = name
    loader = kind(stream)
    try:
        node: Node | None = loader.get_single_node()
        return node
    finally:
        loader.dispose()


def scalar_tag(text: str) -> str:
    """The YAML type of an unquoted scalar."""
    resolver: Any = yaml.SafeLoader("")
    return str(resolver.resolve(ScalarNode, text, (True, False)))


def argument_node(text: str, label: str) -> Node:
    """A value typed on the command line, with the types that it would have in a file."""
    name = COMMAND_LINE + label
    try:
        node = parse_yaml(text, name)
    except ConfigError:
        node = None
    return node if node is not None else ScalarNode("tag:yaml.org,2002:str", text, *marks(name))


def argument_key(word: str, label: str) -> ScalarNode:
    return ScalarNode("tag:yaml.org,2002:str", word, *marks(COMMAND_LINE + label))


def marks(name: str) -> tuple[yaml.Mark, yaml.Mark]:
    return yaml.Mark(name, 0, 0, 0, "", 0), yaml.Mark(name, 0, 0, 0, "", 0)


def where(node: Node) -> str:
    """`file:line`, or the argument as it was typed."""
    name = str(node.start_mark.name)
    if name.startswith(COMMAND_LINE):
        return name[len(COMMAND_LINE) :]
    return f"{name}:{node.start_mark.line + 1}"


def complain(node: Node, message: str) -> SpecopsError:
    """The error to raise about this node: UsageError for an argument, ConfigError for a file."""
    kind = UsageError if str(node.start_mark.name).startswith(COMMAND_LINE) else ConfigError
    return kind(f"{where(node)}: {message}")


def kind_of(node: Node) -> str:
    return str(node.tag).rpartition(":")[2]


def describe(node: Node) -> str:
    """What the node is, in words: `text 'abc'`, `a list`."""
    kind = KINDS.get(kind_of(node), str(node.tag))
    if isinstance(node, ScalarNode) and kind_of(node) != "null":
        return f"{kind} {node.value!r}" if kind_of(node) == "str" else f"{kind} ({node.value})"
    return kind


def entries(node: MappingNode) -> list[tuple[ScalarNode, Node]]:
    """The pairs of a mapping, in order. Duplicate keys and keys that are not plain words are errors."""
    seen: dict[str, ScalarNode] = {}
    pairs: list[tuple[ScalarNode, Node]] = []
    for key, value in node.value:
        if not isinstance(key, ScalarNode):
            raise complain(key, f"a key is a word, this is {describe(key)}")
        if kind_of(key) == "merge":
            raise complain(key, "merge keys (<<) are not read here: write the keys out")
        if key.value in seen:
            raise complain(key, f"duplicate key {key.value!r}, first given at {where(seen[key.value])}")
        seen[key.value] = key
        pairs.append((key, value))
    return pairs


def nearest(word: str, valid: Iterable[str]) -> str:
    """` (did you mean 'x'?)`, else the list of what is valid."""
    known = list(valid)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f" (did you mean {close[0]!r}?)"
    return f" (valid: {', '.join(sorted(known))})" if known else ""


def child(node: Node, *path: str) -> Node:
    """The node at `path` below `node`, or the deepest one on the way; for pointing at it in errors."""
    for word in path:
        if isinstance(node, MappingNode):
            node = next((value for key, value in node.value if key.value == word), node)
        elif isinstance(node, SequenceNode) and word.isdigit() and int(word) < len(node.value):
            node = node.value[int(word)]
    return node
