"""A repeated deploy reads as unchanged with secrets in its environment and arguments, and tells no secret."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from specops.config.overrides import parse_override
from specops.config.patch import Patch
from specops.config.playbook import Playbook, load_playbook
from specops.engine.plan import Plan
from specops.engine.planner import Nothing, Wish, make_plan
from specops.engine.same import ask_for_secrets
from specops.remote import redact
from specops.steps.diff import sha256

from .test_planner import AFTER, PLACE, Host, patches

__all__ = ["patches"]
TOKEN, URL, KEY = "planted-token-1", "http://ann:planted-2@proxy:3128", "planted-key-3"


class Serving(Host):
    """Runs what was launched, and answers as the agent does."""

    def __init__(self, plan: Plan, **env: str) -> None:
        filled = [
            plan.secrets.get(word[8:-1], word) if word.startswith("{secret:") else word
            for word in plan.launch
        ]
        super().__init__("0.5.12", filled, AFTER)
        changes = {name: value or "" for name, value in plan.env_changes.items()}
        secrets = {k: plan.secrets.get(v[8:-1], v) for k, v in changes.items()}
        self.env = {"HOME": "/root", **secrets, **env}
        self.cookie = plan.id
        self.asked: list[str] = []

    def call(self, verb: str, params: dict[str, Any], **more: Any) -> Any:
        answer = super().call(verb, params, **more)
        self.asked.append(json.dumps(params))
        if verb != "facts":
            return answer
        argv = self.argv or []
        answer["server"] |= {
            "argv": redact.redact_argv(argv),
            "env": redact.redact_env(self.env),
            "same": redact.same_secrets(params["secrets"], argv, self.env),
            "cookie": self.cookie,
        }
        answer["state"]["current"] = {"id": self.cookie, "files": [], "cookies": [self.cookie]}
        self.asked.append(json.dumps(answer))
        return answer


def book(token: str = TOKEN, key: str = KEY) -> Playbook:
    words = ("gate.threshold=7", "draft.topk=4", "draft.num_draft_tokens=16", f"server.args.api-key={key}")
    made = load_playbook("lab", [parse_override(word) for word in words], {"model": "/m", "draft": "/d"})
    env = replace(made.env, set={**made.env.set, "HF_TOKEN": token, "HTTPS_PROXY": URL, "NCCL_DEBUG": "WARN"})
    return replace(made, env=env)


def again(patches: dict[str, Patch], host: Host, playbook: Playbook) -> Plan | Nothing:
    wish = Wish(playbook=playbook, available=patches, accept_unproven=True)
    return make_plan(PLACE, wish, host)  # type: ignore[arg-type]


@pytest.fixture
def first(patches: dict[str, Patch]) -> Plan:
    made = again(patches, Host(argv=["python"]), book())
    assert isinstance(made, Plan)
    return made


def test_the_same_secrets_are_unchanged(patches: dict[str, Patch], first: Plan) -> None:
    host = Serving(first)
    assert isinstance(again(patches, host, book()), Nothing)
    text = "".join(host.asked)
    assert [secret for secret in (TOKEN, "planted-2", KEY) if secret in text] == []


@pytest.mark.parametrize(
    ("playbook", "env"),
    [
        (book(token="planted-token-2"), {}),
        (book(key="planted-key-4"), {}),
        (book(), {"HF_TOKEN": "another"}),
        (book(), {"HTTPS_PROXY": "http://ann:other@proxy:3128"}),
        (book(), {"NCCL_DEBUG": "INFO"}),
    ],
    ids=["new token", "new key", "its token", "its proxy", "no secret"],
)
def test_another_value_is_a_change(
    patches: dict[str, Patch], first: Plan, playbook: Playbook, env: dict[str, str]
) -> None:
    assert isinstance(again(patches, Serving(first, **env), playbook), Plan)


def test_a_plan_shows_only_variables_that_change(patches: dict[str, Patch], first: Plan) -> None:
    made = again(patches, Serving(first, NCCL_DEBUG="INFO"), book())
    assert isinstance(made, Plan)
    assert set(made.env_changes) == {"NCCL_DEBUG"}


def test_each_question_has_a_key_of_its_own() -> None:
    one, two = (ask_for_secrets({"HF_TOKEN": TOKEN, "A": "1"}, {"api-key": KEY, "tp": 2}) for _ in "12")
    assert set(one["env"]) == {"HF_TOKEN"}
    assert set(one["flags"]) == {"--api-key"}
    assert one["env"]["HF_TOKEN"] != two["env"]["HF_TOKEN"]
    assert str(sha256(TOKEN.encode())) not in json.dumps(one)
    assert ask_for_secrets({"A": "1"}, {"tp": 2}) == {}
