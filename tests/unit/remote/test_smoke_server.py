"""A whole smoke test against small servers in this process that misbehave in one way each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from specops.remote.smoke.load import Stream
from specops.remote.smoke.run import run_smoke
from tests.unit.remote.smoke_bench import make_spec

Json = dict[str, Any]
INFO: Json = {
    "version": "0.5.18",
    "speculative_algorithm": "EAGLE3",
    "speculative_adaptive": True,
    "max_running_requests": 16,
    "decode_log_interval": 10,
    "disable_cuda_graph": True,
    "internal_states": [{"speculative_num_steps": 3, "effective_max_running_requests_per_dp": 16}],
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def smoke_at(
    generate: Handler, info: Json = INFO, running: int = 0, load: int | None = None, **changes: Any
) -> Json:
    """The result of a run; its events must tell of the same checks. `load` is what /get_load says, None
    where there is no such page; `running` is the gauge."""

    async def tell_load(request: web.Request) -> web.Response:
        return web.json_response([] if load is None else [{"num_reqs": load, "num_waiting_reqs": 0}])

    async def tell_info(request: web.Request) -> web.Response:
        return web.json_response(info)

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text=f'sglang:num_running_reqs{{tp="0"}} {running}.0\n')

    async def run() -> Json:
        app = web.Application()
        app.add_routes([web.post("/generate", generate), web.get("/server_info", tell_info)])
        app.add_routes([web.get("/metrics", metrics), web.get("/get_load", tell_load)])
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        events: list[Json] = []
        try:
            result = await run_smoke(make_spec(url=f"http://127.0.0.1:{port}", **changes), events.append)
        finally:
            await runner.cleanup()
        told = [event["id"] for event in events if event["event"] == "check"]
        assert told == [check["id"] for check in result["checks"]]
        return result

    return asyncio.run(run())


async def refuse(request: web.Request) -> web.StreamResponse:
    return web.Response(status=500, text="out of order")


async def hang_after_a_token(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    chunk = {"text": "x", "output_ids": [1], "meta_info": {"completion_tokens": 1, "finish_reason": None}}
    await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    await asyncio.sleep(30)
    return response


def test_a_hung_server_is_a_fail_after_the_gap_and_ends_the_run() -> None:
    result = smoke_at(hang_after_a_token, token_gap_s=0.5)
    assert [(check["id"], check["verdict"]) for check in result["checks"]] == [("S0", "pass"), ("S1", "fail")]
    assert "hangs" in result["checks"][1]["summary"]
    assert result["verdict"] == "fail"


def test_a_request_that_fails_is_a_fail_with_the_servers_words() -> None:
    result = smoke_at(refuse)
    assert result["checks"][-1]["verdict"] == "fail"
    assert "out of order" in result["checks"][-1]["summary"]


def test_a_server_that_admits_too_little_fails_before_any_load() -> None:
    states = [{"speculative_num_steps": 3, "effective_max_running_requests_per_dp": 8}]
    result = smoke_at(refuse, {**INFO, "max_running_requests": 8, "internal_states": states})
    assert [check["id"] for check in result["checks"]] == ["S0"]
    assert "at most 8" in result["checks"][0]["summary"]


def test_the_native_gate_that_sglang_switched_off_fails() -> None:
    result = smoke_at(refuse, {**INFO, "speculative_adaptive": False})
    assert result["checks"][0]["verdict"] == "fail"


def test_other_peoples_requests_stop_the_run_unless_shared() -> None:
    result = smoke_at(refuse, running=2)
    assert result["verdict"] == "inconclusive"
    assert "2 requests that are not ours" in result["checks"][-1]["summary"]
    assert [check["id"] for check in result["checks"]] == ["S0"]
    assert smoke_at(refuse, running=2, shared=True)["checks"][0]["verdict"] == "pass"


def test_the_gauge_of_a_load_that_is_over_is_nobodys_request() -> None:
    assert smoke_at(refuse, running=64, load=0)["checks"][0]["verdict"] == "pass"
    assert smoke_at(refuse, running=0, load=3)["checks"][0]["verdict"] == "inconclusive"


def test_simulated_acceptance_proves_nothing() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        tokens = (await request.json())["sampling_params"]["max_new_tokens"]
        response = web.StreamResponse()
        await response.prepare(request)
        meta = {"completion_tokens": tokens, "finish_reason": {"type": "length"}}
        chunk = {"text": "x", "output_ids": [1] * tokens, "meta_info": meta}
        await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n")
        return response

    result = smoke_at(answer, simulated=True, checks=["S1"])
    assert result["verdict"] == "inconclusive"
    assert "SGLANG_SIMULATE_ACC_LEN" in result["checks"][0]["summary"]


def test_a_step_is_asked_for_by_itself_whatever_the_servers_interval() -> None:
    """On a server with --stream-interval 16 every level read as a machine too busy to read a stream."""
    asked = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append((await request.json())["sampling_params"].get("stream_interval"))
        return await refuse(request)

    smoke_at(answer, checks=["S1"])
    assert set(asked) == {1}


@pytest.mark.parametrize("texts", [("a", "ab", "abcd"), ("a", "b", "cd")])
@pytest.mark.parametrize("ids", [([1], [1, 2], [1, 2, 3, 4]), ([1], [2], [3, 4])])
def test_an_answer_is_whole_however_it_is_streamed(
    texts: tuple[str, ...], ids: tuple[list[int], ...]
) -> None:
    """0.5.5 sends the ids of each chunk alone: S7 would have called every answer of it too short."""
    stream = Stream(prompt="p", asked=4)
    for count, text, some in zip((1, 2, 4), texts, ids, strict=True):
        stream.take({"text": text, "output_ids": some, "meta_info": {"completion_tokens": count}})
    assert (stream.ids, stream.text, stream.tokens) == ([1, 2, 3, 4], "abcd", 4)


def test_an_answer_whose_pieces_were_merged_has_no_ids_to_compare() -> None:
    stream = Stream(prompt="p", asked=6)
    for count, some in ((1, [1]), (4, [4]), (5, [5]), (6, [6])):
        stream.take({"text": "x" * count, "output_ids": some, "meta_info": {"completion_tokens": count}})
    assert (stream.ids, stream.tokens) == ([], 6)
