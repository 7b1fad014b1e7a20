"""The commented playbook shows every key with the default of the code; the lab's is read as it is meant."""

from __future__ import annotations

import re
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, get_type_hints

import yaml

from specops.config.playbook import Draft, Playbook, load_playbook
from specops.config.schema import keys
from specops.config.shipped import shipped

COMMENTED = shipped("playbooks") / "eagle3-gated.yaml"
LAB_VARS = {"model": "/lab/target", "draft": "/lab/draft"}


def documented() -> dict[str, str]:
    """Dotted key -> its line's comment, of every key in the commented playbook that is not free."""
    found: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in COMMENTED.read_text().splitlines():
        match = re.match(r"( *)([\w-]+):(?: |$)", line)
        if match is None:
            continue
        depth = len(match[1])
        above = [(indent, key) for indent, key in above if indent < depth] + [(depth, match[2])]
        dotted = ".".join(key for _, key in above)
        if not dotted.startswith(("server.args.", "env.set.")):
            found[dotted] = line.partition("#")[2].strip()
    return found


def known(cls: type[Any], path: str = "") -> dict[str, Field[Any]]:
    """Dotted key -> field, of every key that the parser takes."""
    found: dict[str, Field[Any]] = {}
    hints = get_type_hints(cls)
    for name, item in keys(cls).items():
        spot = f"{path}{name}"
        found[spot] = item
        inner = Draft if name == "draft" else hints[name]
        if isinstance(inner, type) and is_dataclass(inner):
            found |= known(inner, f"{spot}.")
    return found


def default_of(item: Field[Any]) -> Any:
    if item.default_factory is not MISSING:
        return item.default_factory()
    return None if item.default is MISSING else item.default


def test_every_key_is_shown_and_every_shown_key_is_known() -> None:
    assert set(documented()) == set(known(Playbook))


def test_the_comments_give_the_defaults_of_the_code() -> None:
    comments = documented()
    compared = 0
    for spot, item in known(Playbook).items():
        default = default_of(item)
        if default is None or is_dataclass(default) or spot == "draft.num_draft_tokens":
            continue
        shown = re.search(r"\(([^()]*)\)$", comments[spot])
        if spot in ("env.set", "env.unset"):
            assert not default
            continue
        assert shown is not None, f"{spot}: the comment gives no default"
        value = yaml.safe_load(shown[1])
        assert value == (list(default) if isinstance(default, tuple) else default), spot
        compared += 1
    assert compared >= 25


def test_the_commented_playbook_is_read_as_it_is_written() -> None:
    playbook = load_playbook(str(COMMENTED))
    assert playbook.draft is not None
    assert (playbook.draft.num_steps, playbook.draft.num_draft_tokens) == (3, 4)
    assert playbook.gate.threshold == 5
    assert playbook.server.tp == 8
    assert playbook.server.args["enable-metrics"] is True
    assert playbook.env.set["NCCL_NVLS_ENABLE"] == "0"
    assert playbook.smoke.checks == ("S0", "S1", "S3", "S2", "S7", "S4", "S5", "S6")
    assert playbook.sweep.levels == (1, 2, 5, 10)


def test_the_labs_playbook_takes_its_paths_from_the_inventory() -> None:
    playbook = load_playbook("lab", variables=LAB_VARS)
    assert playbook.draft is not None
    assert (playbook.model.path, playbook.draft.path) == ("/lab/target", "/lab/draft")
    assert playbook.server.mem_fraction_static == 0.3
    assert playbook.server.args["max-total-tokens"] == 20000
    assert playbook.smoke.exact_outputs


def test_every_setting_says_what_it_means() -> None:
    assert all(item.metadata["doc"] for item in known(Playbook).values())
    assert {item.name for item in fields(Playbook)} == set(keys(Playbook))
