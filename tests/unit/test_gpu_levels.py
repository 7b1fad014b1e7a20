"""A window of the GPU measurements: what it counts, and that it leaves nothing running."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import aiohttp
from aiohttp import web

from benchmarks.gpu.intervals import launch_noise, ratio_interval
from benchmarks.gpu.levels import window
from benchmarks.gpu.step_profile import read_trace

STEP_S, TOKENS_A_STEP = 0.02, 2
SIZE = 3


class Endless:
    """Two tokens a verification until it is told to end a request; that nobody reads is no reason."""

    def __init__(self) -> None:
        self.running: set[str] = set()

    async def generate(self, request: web.Request) -> web.StreamResponse:
        rid = (await request.json())["rid"]
        answer = web.StreamResponse()
        await answer.prepare(request)
        self.running.add(rid)
        step = 0
        while rid in self.running:
            step += 1
            meta = {"completion_tokens": TOKENS_A_STEP * step, "spec_verify_ct": step}
            line = json.dumps({"text": "x" * step, "meta_info": meta})
            with contextlib.suppress(OSError):
                await answer.write(b"data: " + line.encode() + b"\n\n")
            await asyncio.sleep(STEP_S)
        return answer

    async def abort(self, request: web.Request) -> web.Response:
        self.running.discard((await request.json())["rid"])
        return web.Response()

    async def load(self, request: web.Request) -> web.Response:
        return web.json_response([{"num_reqs": len(self.running)}])


async def one_window() -> tuple[dict[str, Any], int]:
    served, app = Endless(), web.Application()
    app.router.add_post("/generate", served.generate)
    app.router.add_post("/abort_request", served.abort)
    app.router.add_get("/get_load", served.load)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with aiohttp.ClientSession(read_bufsize=1 << 20) as session:
            row = await window(session, f"http://127.0.0.1:{port}", SIZE, 0.5)
        return row, len(served.running)
    finally:
        await runner.cleanup()


def test_a_window_counts_its_own_tokens_and_closes_its_requests() -> None:
    row, running = asyncio.run(one_window())
    assert (row["C"], row["ok"], row["asked"], row["batch_mean"]) == (SIZE, SIZE, SIZE, SIZE)
    assert row["tokens_per_verify"] == TOKENS_A_STEP
    assert 0 < row["tok_s"] <= SIZE * TOKENS_A_STEP / STEP_S * 1.1, "no more than was written"
    assert running == 0


def test_a_trace_is_read_by_step() -> None:
    """Two steps of 10 ms: kernels that overlap count once; the host counts apart."""
    events: list[dict[str, Any]] = []
    for began in (0, 10_000):
        events += [
            {"cat": "kernel", "name": "gemm", "ts": began, "dur": 4_000},
            {"cat": "kernel", "name": "side", "ts": began + 2_000, "dur": 4_000},
            {"cat": "gpu_memcpy", "name": "copy", "ts": began + 9_000, "dur": 1_000},
            {"cat": "cuda_runtime", "name": "cudaGraphLaunch", "ts": began, "dur": 10},
            {"cat": "cuda_runtime", "name": "cudaEventSynchronize", "ts": began, "dur": 2_500},
            {"cat": "cpu_op", "name": "aten::mm", "ts": began, "dur": 9_999},
        ]
    row = read_trace(events, 2)
    assert (row["step_ms"], row["gpu_ms"], row["idle_ms"]) == (10.0, 7.0, 3.0)
    assert (row["graph_launches"], row["syncs"], row["waits_ms"]) == (1.0, 1.0, 2.5)
    assert row["top"][0] == ["gemm", 4.0]


def test_a_ratio_has_an_interval_and_launches_have_noise() -> None:
    ours, theirs = [99.0, 100.0, 101.0], [100.0, 99.0, 101.0]
    interval = ratio_interval(ours, theirs)
    assert interval is not None
    middle, low, high = interval
    assert middle == 1.0
    assert 0.976 < low < 0.980  # 2.78 times 1 % times sqrt(2/3)
    assert 1.020 < high < 1.024
    assert ratio_interval([100.0], theirs) is None
    assert launch_noise([[100.0, 102.0], [99.0, 99.0], []]) == 0.02
    assert launch_noise([[100.0]]) is None
