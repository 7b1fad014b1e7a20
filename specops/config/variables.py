"""`${name}` in a playbook: what differs between instances that run the same playbook, from the inventory."""

from __future__ import annotations

import re
from collections.abc import Mapping

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from specops.config.source import complain, nearest, scalar_tag

PATTERN = re.compile(r"\$\{([^}]*)\}")


def fill_variables(node: Node, variables: Mapping[str, str]) -> None:
    """Replace every `${name}` below `node` in place; an unquoted value gets the type of the filled-in text.

    Raises ConfigError at the line of a name that is not defined.
    """
    if isinstance(node, ScalarNode):
        fill_scalar(node, variables)
    elif isinstance(node, SequenceNode):
        for item in node.value:
            fill_variables(item, variables)
    elif isinstance(node, MappingNode):
        for _, value in node.value:
            fill_variables(value, variables)


def fill_scalar(node: ScalarNode, variables: Mapping[str, str]) -> None:
    if "${" not in node.value:
        return

    def value_of(match: re.Match[str]) -> str:
        name = match[1]
        if name not in variables:
            known = nearest(name, variables) or " (the instance has no vars)"
            raise complain(node, f"${{{name}}} is not among the instance's vars in the inventory{known}")
        return variables[name]

    node.value = PATTERN.sub(value_of, node.value)
    if node.style is None:
        node.tag = scalar_tag(node.value)
