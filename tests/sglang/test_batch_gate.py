"""The batch-gate patch without a server: its policy, its refusals, its shape, and the judge of its proof."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from benchmarks.gate_load import Answer, client
from benchmarks.gate_proof import read_forwards
from specops.config.patch import load_patch
from specops.steps.gate import parse_release

FOLDER = Path(__file__).resolve().parents[2] / "patches" / "batch-gate"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / "files" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


POLICY = load("batch_gate")


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """batch_gate_0514, which finds the policy where a patched install has it."""
    package = ModuleType("sglang.srt.speculative")
    package.batch_gate = POLICY  # type: ignore[attr-defined]
    for name in ("sglang", "sglang.srt"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, package.__name__, package)
    monkeypatch.setitem(sys.modules, f"{package.__name__}.batch_gate", POLICY)
    return load("batch_gate_0514")


def answer_of(monkeypatch: pytest.MonkeyPatch, **fields: type) -> None:
    """The release's answer to /set_internal_state, with these fields."""
    module = ModuleType("sglang.srt.managers.io_struct")
    answer = type("SetInternalStateReqOutput", (SimpleNamespace,), {"__annotations__": fields})
    module.SetInternalStateReqOutput = answer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sglang.srt.managers", ModuleType("sglang.srt.managers"))
    monkeypatch.setitem(sys.modules, module.__name__, module)


def run(gate: Any, batches: list[int], fresh: bool = False) -> str:
    """o or c for each step."""
    states = ""
    for size in batches:
        closed = not gate.may_open(size, fresh)
        gate.record(size, closed)
        states += "c" if closed else "o"
    return states


def test_it_is_exact_at_the_threshold_and_waits_in_steps() -> None:
    gate = POLICY.BatchGate(5, 3)
    assert run(gate, [5, 6, 5, 5, 5, 5, 5]) == "occcco" + "o"
    assert gate.report()["ring"][:3] == [[1, 5, "open"], [2, 6, "closed"], [3, 5, "closed"]]
    assert (gate.open_steps, gate.closed_steps, gate.switches) == (3, 4, 2)


def test_a_dip_that_is_too_short_does_not_open_it() -> None:
    assert run(POLICY.BatchGate(5, 3), [6, 5, 5, 6, 5, 5, 5, 4, 4]) == "ccccccc" + "oo"


def test_requests_with_nothing_to_catch_up_open_it_at_once() -> None:
    gate = POLICY.BatchGate(5, 3)
    assert run(gate, [9]) == "c"
    assert run(gate, [1], fresh=True) == "o"


def test_zero_always_closes_and_a_large_threshold_never_does() -> None:
    gate = POLICY.BatchGate(5, 0)
    assert gate.set_threshold(0) is None
    assert run(gate, [1, 1], fresh=True) == "cc"
    assert gate.set_threshold(10**6) is None
    assert run(gate, [64, 250]) == "oo"


@pytest.mark.parametrize("nonsense", [-1, "5", 2.5, True, None])
def test_a_threshold_that_is_no_number_of_requests_is_refused_and_changes_nothing(nonsense: object) -> None:
    gate = POLICY.BatchGate(5, 4)
    assert "whole number" in gate.set_threshold(nonsense)
    assert gate.threshold == 5


def test_the_console_answers_for_the_threshold_alone() -> None:
    gate = POLICY.BatchGate(5, 4)
    console = POLICY.GateConsole(SimpleNamespace(tp_size=1, enable_metrics=False), gate)
    assert not console.set_threshold({POLICY.KEY: 3, "pp_max_micro_batch_size": 8})
    assert gate.threshold == 5
    assert console.set_threshold({POLICY.KEY: 3})
    assert console.report()["ranks"] == [[3, "open", 0, 0, 0]]


def test_the_console_tells_closed_steps_from_verifications() -> None:
    console = POLICY.GateConsole(SimpleNamespace(tp_size=1, enable_metrics=False), POLICY.BatchGate(5, 4))
    assert not console.count_step(SimpleNamespace(gate_closed=True))
    assert console.log_part() == "gate: closed, "
    assert console.count_step(SimpleNamespace())
    assert console.log_part() == "gate: open, "


def arguments(**other: object) -> SimpleNamespace:
    plain = {
        "speculative_disable_batch_threshold": 5, "speculative_gate_hysteresis": 4,
        "speculative_algorithm": "EAGLE3", "device": "cuda",
    }  # fmt: skip
    return SimpleNamespace(**{**plain, **other})


def test_without_the_flag_nothing_is_refused() -> None:
    everything = {name: "on" for name, _, _ in POLICY._REFUSED}
    assert POLICY.refusal(arguments(speculative_disable_batch_threshold=None, **everything)) is None
    assert POLICY.refusal(arguments()) is None


@pytest.mark.parametrize("name", [name for name, _, _ in POLICY._REFUSED])
def test_what_it_does_not_support_it_refuses_with_a_sentence(name: str) -> None:
    why = POLICY.refusal(arguments(**{name: 2 if name == "pp_size" else True}))
    assert why.startswith("--speculative-disable-batch-threshold does not work with ")
    assert why.endswith(".")


@pytest.mark.parametrize("algorithm", [None, "NGRAM", "STANDALONE"])
def test_it_needs_eagle(algorithm: str | None) -> None:
    assert "needs --speculative-algorithm EAGLE" in POLICY.refusal(arguments(speculative_algorithm=algorithm))


def test_later_releases_refuse_what_the_older_do_and_more(later: ModuleType) -> None:
    everything = {name: "on" for name, _, _ in (*POLICY._REFUSED, *later._REFUSED)}
    assert later.refusal(arguments(speculative_disable_batch_threshold=None, **everything)) is None
    assert later.refusal(arguments(attn_cp_size=1, decoupled_spec_role="null", dcp_size=None)) is None
    for name, _, _ in (*POLICY._REFUSED, *later._REFUSED):
        why = later.refusal(arguments(**{name: 2 if name.endswith("size") else True}))
        assert why.startswith("--speculative-disable-batch-threshold does not work with "), name
        with pytest.raises(ValueError, match="does not work with"):
            later.check_arguments(arguments(**{name: 2 if name.endswith("size") else True}))


def test_later_releases_refuse_models_whose_past_cannot_be_run_again(later: ModuleType) -> None:
    pool, draft = SimpleNamespace(), SimpleNamespace()
    later.check_worker(SimpleNamespace(req_to_token_pool=pool, draft_worker=draft))
    hybrid = SimpleNamespace(req_to_token_pool=SimpleNamespace(mamba_pool=object()), draft_worker=draft)
    sparse = SimpleNamespace(seed_dsa_topk_from_draft_extend=True)
    for worker in (hybrid, SimpleNamespace(req_to_token_pool=pool, draft_worker=sparse)):
        with pytest.raises(ValueError, match="does not work with"):
            later.check_worker(worker)


@pytest.mark.parametrize("fields", [{"updated": bool}, {"updated": bool, "server_args": dict}])
def test_later_releases_answer_for_the_threshold_in_their_own_terms(
    later: ModuleType, monkeypatch: pytest.MonkeyPatch, fields: dict[str, type]
) -> None:
    answer_of(monkeypatch, **fields)
    gate = POLICY.BatchGate(5, 4)
    console = POLICY.GateConsole(SimpleNamespace(tp_size=1, enable_metrics=False), gate)
    scheduler = SimpleNamespace(gate_console=console)
    answer = later.set_state(scheduler, {POLICY.KEY: 3})
    assert answer.updated
    assert set(vars(answer)) == set(fields)
    assert later.internal_state(scheduler)[POLICY.KEY] == 3
    assert later.internal_state(scheduler)["speculative_gate"]["threshold"] == 3
    assert not later.set_state(scheduler, {POLICY.KEY: -1}).updated
    stock = SimpleNamespace(gate_console=None)
    assert not later.set_state(stock, {POLICY.KEY: 3}).updated
    assert later.internal_state(stock) == {}


def test_every_release_has_one_gate_and_a_hook_in_each_of_its_workers() -> None:
    patch = load_patch(FOLDER)
    assert len(patch.releases) == 29
    added: dict[str, set[str]] = {}
    for release, content in patch.releases.items():
        hooked = {change.path for change in content.files if change.diff}
        older = {"srt/speculative/eagle_worker.py"} if parse_release(release) < (0, 5, 13, 0) else set()
        assert {"srt/speculative/eagle_worker_v2.py", *older} <= hooked
        for change in content.files:
            if change.added:
                added.setdefault(change.path, set()).add(change.after)
    assert all(len(hashes) == 1 for hashes in added.values())
    assert "srt/speculative/batch_gate.py" in added


def test_the_judge_sees_an_open_and_a_closed_step_and_a_catch_up() -> None:
    lines = [
        "target EXTEND 1", "draft EXTEND 1",
        "draft DECODE 1", "draft DECODE 1", "target TARGET_VERIFY 1", "draft DRAFT_EXTEND 1",
        "target DECODE 6", "target DECODE 6",
        "target EXTEND 1", "draft EXTEND 1",
        "draft DECODE 1", "draft DECODE 1", "target TARGET_VERIFY 1", "draft DRAFT_EXTEND_V2 1",
    ]  # fmt: skip
    seen = read_forwards(lines)
    assert (seen.closed_steps, seen.open_steps, seen.crossings, seen.draft_while_closed) == (2, 2, 2, 0)


@pytest.mark.parametrize(
    "lines",
    [
        ["draft DECODE 6", "target DECODE 6"],
        ["target DECODE 6", "draft DRAFT_EXTEND 6"],
        ["target DECODE 6", "draft EXTEND 6"],
    ],
)
def test_the_judge_finds_a_draft_that_runs_while_closed(lines: list[str]) -> None:
    assert read_forwards(lines).draft_while_closed == 1


async def lossy(request: web.Request) -> web.StreamResponse:
    """0.5.5: a stream tells in each chunk what is new, and of chunks that came together the last."""
    whole = {"text": "a b c", "output_ids": [1, 2, 3], "meta_info": {"completion_tokens": 3}}
    if not (await request.json())["stream"]:
        return web.json_response(whole)
    body = f"data: {json.dumps({**whole, 'output_ids': [3]})}\n\ndata: [DONE]\n\n"
    return web.Response(text=body, content_type="text/event-stream")


def test_where_a_stream_loses_ids_an_answer_is_asked_for_in_one_piece_unless_it_is_watched() -> None:
    async def ask() -> tuple[Answer, Answer, Answer]:
        app = web.Application()
        app.router.add_post("/generate", lossy)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        async with client(port, "0.5.5.post1") as older, client(port, "0.5.6") as later:
            found = (await older.ask("", 3), await older.ask("", 3, Answer()), await later.ask("", 3))
        await runner.cleanup()
        return found

    alone, watched, streamed = asyncio.run(ask())
    assert alone.tokens == [1, 2, 3]
    assert watched.tokens == streamed.tokens == [3]
    assert watched.counts == [3]
