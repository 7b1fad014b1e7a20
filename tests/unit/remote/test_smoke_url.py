"""A server known by its URL alone: what it says of itself, and what it says when it cannot be asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from specops.remote.smoke.ask import fill
from specops.remote.smoke.run import run_smoke
from tests.unit.remote.smoke_bench import make_spec
from tests.unit.remote.test_smoke_server import INFO, refuse, smoke_at

UNKNOWN: dict[str, Any] = {"ask_server": True, "gate": "auto", "release": None}
TREE: dict[str, Any] = {
    "version": "0.5.12.post1",
    "speculative_num_steps": 5,
    "speculative_eagle_topk": 4,
    "cuda_graph_bs": [1, 2, 4],
    "internal_states": [{"speculative_gate": {"state": "open"}}],
}


def test_a_patched_server_tells_its_release_its_gate_and_its_tree() -> None:
    spec = fill(make_spec(**UNKNOWN), TREE)
    assert (spec.release, spec.gate, spec.num_steps, spec.topk) == ("0.5.12.post1", "batch-gate", 5, 4)
    assert spec.graphs


def test_a_native_gate_that_is_closed_just_now_does_not_say_how_far_it_drafts() -> None:
    spec = fill(make_spec(**UNKNOWN), {**INFO, "speculative_num_steps": 0})
    assert (spec.gate, spec.num_steps, spec.graphs) == ("native", 3, False)


def test_a_gate_that_was_asked_for_is_not_replaced_by_another_that_is_there() -> None:
    assert fill(make_spec(ask_server=True, gate="native"), TREE).gate == "native"


def test_the_checks_run_as_for_the_release_that_the_server_names() -> None:
    result = smoke_at(refuse, checks=["S0"], **UNKNOWN)
    (check,) = result["checks"]
    assert (check["verdict"], check["evidence"]["gate"]) == ("pass", "native")


def ask_locked(api_key_env: str | None) -> dict[str, Any]:
    async def lock(request: web.Request) -> web.Response:
        good = request.headers.get("Authorization") == "Bearer right"
        return web.json_response(INFO) if good else web.Response(status=401, text="Unauthorized")

    async def run() -> dict[str, Any]:
        app = web.Application()
        app.add_routes([web.get("/{page}", lock)])
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            spec = make_spec(url=url, checks=["S0"], api_key_env=api_key_env, **UNKNOWN)
            return await run_smoke(spec, lambda event: None)
        finally:
            await runner.cleanup()

    return asyncio.run(run())


def test_a_key_is_asked_for_and_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", "wrong")
    assert "wants an API key: --api-key-env" in ask_locked(None)["summary"]
    assert "refuses the key" in ask_locked("THE_KEY")["summary"]
    monkeypatch.setenv("THE_KEY", "right")
    result = ask_locked("THE_KEY")
    assert result["verdict"] == "pass"
    assert "right" not in str(result["checks"])


def test_where_nothing_answers_no_check_is_begun() -> None:
    result = asyncio.run(run_smoke(make_spec(url="http://127.0.0.1:9", **UNKNOWN), lambda event: None))
    assert (result["verdict"], result["checks"], result["unanswered"]) == ("error", [], True)
    assert "nothing answers at http://127.0.0.1:9" in result["summary"]
