"""Overrides from the command line are typed and checked like the file, and are usage errors."""

from __future__ import annotations

import pytest

from specops.config.overrides import Override, gate_override, parse_override, threshold_override
from specops.config.playbook import Playbook, load_playbook
from specops.errors import UsageError


def load(*overrides: Override) -> Playbook:
    return load_playbook("lab", overrides, {"model": "/m", "draft": "/d"})


def test_values_take_the_type_of_their_key() -> None:
    playbook = load(
        parse_override("server.mem_fraction_static=0.8"),
        parse_override("server.cuda_graph_bs=[1, 2, 4]"),
        parse_override("server.args.disable-cuda-graph=false"),
        parse_override("env.set.OMP_NUM_THREADS=1"),
        parse_override("model.served_name=a=b"),
        threshold_override("8"),
        gate_override("native"),
    )
    assert playbook.server.mem_fraction_static == 0.8
    assert playbook.server.cuda_graph_bs == (1, 2, 4)
    assert playbook.server.args["disable-cuda-graph"] is False
    assert playbook.env.set == {"OMP_NUM_THREADS": "1"}
    assert playbook.model.served_name == "a=b"
    assert (playbook.gate.threshold, playbook.gate.kind) == (8, "native")


def test_the_last_one_wins() -> None:
    assert load(threshold_override(3), parse_override("gate.threshold=4")).gate.threshold == 4


def test_a_section_can_be_taken_away_and_made() -> None:
    assert load(parse_override("draft=null")).draft is None
    draft = load(parse_override("draft=null"), parse_override("draft.path=/other")).draft
    assert draft is not None
    assert (draft.path, draft.num_draft_tokens) == ("/other", 4)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("server.mem_fraction_statc=0.8", r"unknown key \(did you mean 'mem_fraction_static'\?\)"),
        ("servr.tp=2", r"servr: unknown key \(did you mean 'server'\?\)"),
        ("server.mem_fraction_static=8", "must be from 0.01 to 0.99, not 8"),
        ("server.tp=two", "expected a whole number, this is text 'two'"),
        ("server.tp=", "expected a whole number"),
        ("server.tp.size=2", "it has no keys|expected a whole number"),
        ("model.path.x=2", "model.path is text '.*', it has no keys"),
        ("draft.num_draft_tokens=7", r"num_steps \+ 1 = 4, not 7"),
    ],
)
def test_wrong_ones_are_named_as_they_were_typed(override: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        load(parse_override(override))
    assert caught.value.message.startswith(f"--set {override}: ")


@pytest.mark.parametrize("text", ["0", "-1", "five", "1.5", ""])
def test_thresholds_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match=r"gate\.threshold: "):
        load(threshold_override(text))


@pytest.mark.parametrize("text", ["server.tp", "=3", "server..tp=3", ""])
def test_what_is_no_override(text: str) -> None:
    with pytest.raises(UsageError, match=r"write --set key\.key=value"):
        parse_override(text)
