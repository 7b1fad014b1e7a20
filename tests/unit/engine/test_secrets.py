"""Secrets of a playbook travel beside the plan."""

from __future__ import annotations

import json

import pytest

from specops.engine.plan import Outage, Plan
from specops.engine.secrets import SECRET_NAME, hide_secrets
from specops.remote import redact
from specops.steps.server import LaunchSpec, launch

ENV = {"HF_TOKEN": "planted-1", "HTTPS_PROXY": "http://ann:planted-2@proxy", "NCCL_DEBUG": "WARN"}
ARGV = ("python", "--api-key", "planted-3", "--max-total-tokens", "4096", "--tokenizer-path", "/t")


def test_a_plan_names_its_secrets_and_holds_none() -> None:
    spec = LaunchSpec(argv=ARGV, cwd="/", base="login", set=ENV, port=1, cookie="c")
    plan = Plan(
        id="d1",
        kind="deploy",
        host="box",
        instance={},
        facts_digest="",
        summary={},
        steps=(launch(spec),),
        outage=Outage(load_s=None, restore_s=None, replaces=None),
        launch=ARGV,
        env_changes={**ENV, "GONE": None},
    )
    hidden = hide_secrets(plan)
    for text in (json.dumps(hidden.as_wire()), json.dumps(hidden.as_json()), repr(hidden)):
        assert "planted" not in text
        assert "WARN" in text or text.startswith('{"format"')
    assert hidden.secrets == {
        "HF_TOKEN": "planted-1",
        "HTTPS_PROXY": "http://ann:planted-2@proxy",
        "api-key": "planted-3",
    }
    assert hidden.launch == ("python", "--api-key", "{secret:api-key}", *ARGV[3:])
    assert hidden.env_changes["HF_TOKEN"] == "{secret:HF_TOKEN}"
    assert hidden.env_changes["GONE"] is None


def test_both_sides_mean_the_same_names() -> None:
    assert SECRET_NAME.pattern == redact.SECRET_NAME.pattern


@pytest.mark.parametrize("name", ["max-total-tokens", "num-keys", "key"])
def test_a_count_is_no_secret(name: str) -> None:
    assert not redact.looks_secret(f"--{name}")
