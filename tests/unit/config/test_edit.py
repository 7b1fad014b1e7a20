"""One number in a playbook, and not a byte besides."""

from __future__ import annotations

from pathlib import Path

import pytest

from specops.config.edit import set_number
from specops.config.playbook import load_playbook
from specops.config.prompts import load_prompts
from specops.config.shipped import shipped
from specops.errors import ConfigError


def test_every_comment_of_the_commented_playbook_stays(tmp_path: Path) -> None:
    path = tmp_path / "book.yaml"
    before = (shipped("playbooks") / "eagle3-gated.yaml").read_text()
    path.write_text(before)
    path.chmod(0o640)
    assert set_number(path, "gate", "threshold", 12) == "5"
    changed = [
        (a, b) for a, b in zip(before.splitlines(), path.read_text().splitlines(), strict=True) if a != b
    ]
    assert len(changed) == 1
    old, new = changed[0]
    assert (old.index("#"), old.partition("#")[2]) == (new.index("#"), new.partition("#")[2])
    assert load_playbook(str(path)).gate.threshold == 12
    assert path.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in tmp_path.iterdir()] == ["book.yaml"]


@pytest.mark.parametrize(
    "gate",
    [
        "",
        "gate: {kind: auto}\n",
        "gate: {}\n",
        "gate:\n    # why\n    kind: auto\n",
        "gate: {threshold: 5, kind: auto}\n",
    ],
)
def test_it_is_put_where_there_was_none(tmp_path: Path, gate: str) -> None:
    path = tmp_path / "book.yaml"
    path.write_text(f"name: x\n{gate}model: {{path: m}}  # last")
    set_number(path, "gate", "threshold", 7)
    assert load_playbook(str(path)).gate.threshold == 7
    assert "# last" in path.read_text()
    assert ("# why" in gate) == ("# why" in path.read_text())


def test_a_section_that_is_no_mapping_is_named(tmp_path: Path) -> None:
    path = tmp_path / "book.yaml"
    path.write_text("name: x\ngate: 5\n")
    with pytest.raises(ConfigError, match=r"book.yaml:2: gate is no mapping"):
        set_number(path, "gate", "threshold", 7)


def test_prompts_of_conversations(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(
        '{"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "one"}]}\n'
        '{"messages": [{"role": "user", "content": "two"}, {"role": "assistant", "content": "no"}]}\n'
        '"three"\n'
    )
    assert load_prompts(path) == ("one", "two", "three")
    path.write_text('{"conversations": [{"from": "gpt", "value": "s"}]}\n')
    with pytest.raises(ConfigError, match=r"p.jsonl:1: a prompt is"):
        load_prompts(path)
