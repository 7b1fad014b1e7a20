"""Status: a gate that is not what was deployed is told, and no word of it is not a yes."""

from __future__ import annotations

from typing import Any

import pytest

from specops.engine.status import find_drift, read_gate

from .test_preflight import SERVER, facts

OPEN = {"speculative_adaptive": True, "internal": {"speculative_num_steps": 3}}
CLOSED = {"speculative_adaptive": True, "internal": {"speculative_num_steps": 0}}
PATCHED = {"internal": {"speculative_gate": {"state": "open", "threshold": 5}}}


def gate(kind: str, reported: dict[str, Any], **server: Any) -> tuple[str, str]:
    current = {"id": "d1", "summary": {"gate": kind, "threshold": 5}, "files": []}
    state = {"current": {**current, "cookies": ["d1"]}}
    return read_gate(facts(server={**SERVER, "reported": reported, **server}, state=state))


@pytest.mark.parametrize(
    ("kind", "reported", "says", "drift"),
    [
        ("native", OPEN, "open (3 draft steps)", ""),
        ("native", CLOSED, "closed (0 draft steps)", ""),
        ("native", {**OPEN, "speculative_adaptive": False}, "off", "gate is off"),
        ("native", {"internal": {}, "version": "0.5.18"}, "off", "does not report speculative_adaptive"),
        ("native", {"speculative_adaptive": True, "internal": {}}, "not reported", "cannot be trusted"),
        ("native", {}, "unknown", ""),
        ("batch-gate", PATCHED, "open (threshold 5)", ""),
        ("batch-gate", OPEN, "off", "the patch is not active"),
        ("batch-gate", {"internal": {"speculative_gate": {"threshold": 9}}}, "9", "deployed was 5"),
        ("none", OPEN, "", ""),
    ],
)
def test_what_the_gate_does_now(kind: str, reported: dict[str, Any], says: str, drift: str) -> None:
    said, off = gate(kind, reported)
    assert says in said
    assert bool(drift) == bool(off)
    assert drift in off


def test_sglangs_own_word_that_it_switched_the_gate_off_counts_more_than_its_report() -> None:
    said, off = gate("native", OPEN, gate_off="speculative_adaptive disabled: topk=4.")
    assert (said, off) == ("off", "the gate is off: SGLang said: speculative_adaptive disabled: topk=4.")


@pytest.mark.parametrize(
    ("paths", "server", "words"),
    [
        ({"/p/worker.py": "after", "/p/gate.py": None}, {"cookie": "d1"}, []),
        (
            {"/p/worker.py": "pristine", "/p/gate.py": None},
            {"cookie": "d1"},
            ["/p/worker.py is not as deploy d1"],
        ),
        ({"/p/worker.py": None, "/p/gate.py": "x"}, {"cookie": "d1"}, ["/p/worker.py is", "/p/gate.py is"]),
        ({"/p/worker.py": "after"}, {"cookie": "lab"}, ["pid 4711) is not the one that deploy d1 started"]),
        ({"/p/worker.py": "after"}, None, ["the server of deploy d1 is gone"]),
    ],
)
def test_files_and_servers_that_are_not_as_deployed_are_told(
    paths: dict[str, Any], server: dict[str, Any] | None, words: list[str]
) -> None:
    """As after `pip install -U sglang`, or a start by hand."""
    files = [
        {"path": "/p/worker.py", "before": "pristine", "after": "after"},
        {"path": "/p/gate.py", "before": "pristine", "after": None},
    ]
    current = {"id": "d1", "summary": {}, "files": files, "cookies": ["d1", "d1-old"]}
    found = facts(paths=paths, server=server and {**SERVER, **server}, state={"current": current})
    drift = find_drift(found)
    assert len(drift) == len(words)
    assert all(word in line for word, line in zip(words, drift, strict=True))
