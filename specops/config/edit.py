"""Edits of a playbook's text: one value changed, every comment and every other byte kept."""

from __future__ import annotations

import os
import re
from pathlib import Path

from yaml.nodes import MappingNode, Node, ScalarNode

from specops.config.source import read_source
from specops.errors import ConfigError


def set_number(path: Path, section: str, key: str, value: int) -> str:
    """Set `section.key` in the file and return the old text of the value; empty where it was not there.

    Raises ConfigError where the file is no mapping or the section is something else.
    """
    root = read_source(path, what="playbook").root
    text = path.read_text(encoding="utf-8")
    found = _child(root, section)
    if found is None:
        end = "" if text.endswith("\n") else "\n"
        _write(path, f"{text}{end}\n{section}:\n  {key}: {value}\n")
        return ""
    if not isinstance(found, MappingNode):
        raise ConfigError(f"{path}:{found.start_mark.line + 1}: {section} is no mapping, so it has no {key}")
    old = _child(found, key)
    if old is None:
        _write(path, _insert(text, found, key, value))
        return ""
    if not isinstance(old, ScalarNode):
        raise ConfigError(f"{path}:{old.start_mark.line + 1}: {section}.{key} is no number")
    start, end_at = old.start_mark.index, old.end_mark.index
    _write(path, _keep_columns(text, start, end_at, str(value)))
    return text[start:end_at]


def _child(node: MappingNode, name: str) -> Node | None:
    found: list[Node] = [value for key, value in node.value if key.value == name]
    return found[-1] if found else None


def _keep_columns(text: str, start: int, end: int, new: str) -> str:
    """A comment behind the value stays in its column where there is room."""
    gap = re.match(r" +(?=#)", text[end:])
    if gap is None:
        return text[:start] + new + text[end:]
    spaces = max(1, len(gap[0]) + (end - start) - len(new))
    return text[:start] + new + " " * spaces + text[end + gap.end() :]


def _insert(text: str, section: MappingNode, key: str, value: int) -> str:
    """As the section's first key, in its own style."""
    if section.flow_style or not section.value:
        at = section.start_mark.index + 1
        return f"{text[:at]}{key}: {value}{', ' if section.value else ''}{text[at:]}"
    mark = section.value[0][0].start_mark
    return f"{text[: mark.index]}{key}: {value}\n{' ' * mark.column}{text[mark.index :]}"


def _write(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.chmod(path.stat().st_mode & 0o777)
        os.replace(beside, path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ConfigError(f"{path}:1: cannot be written: {error.strerror}") from error
