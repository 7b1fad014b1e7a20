"""A window of the GPU measurements: what it counts, and that it leaves nothing running."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
from aiohttp import web

from benchmarks.gpu.levels import window

STEP_S, TOKENS_A_STEP = 0.02, 2
SIZE = 3


class Endless:
    """Two tokens a verification, for as long as somebody reads."""

    def __init__(self) -> None:
        self.running = 0

    async def generate(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        self.running += 1
        try:
            for step in range(1, 10_000):
                meta = {"completion_tokens": TOKENS_A_STEP * step, "spec_verify_ct": step}
                await answer.write(
                    b"data: " + json.dumps({"text": "x" * step, "meta_info": meta}).encode() + b"\n\n"
                )
                await asyncio.sleep(STEP_S)
        finally:
            self.running -= 1
        return answer

    async def load(self, request: web.Request) -> web.Response:
        return web.json_response([{"num_reqs": self.running}])


async def one_window() -> tuple[dict[str, Any], int]:
    served, app = Endless(), web.Application()
    app.router.add_post("/generate", served.generate)
    app.router.add_get("/get_load", served.load)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with aiohttp.ClientSession(read_bufsize=1 << 20) as session:
            row = await window(session, f"http://127.0.0.1:{port}", SIZE, 0.5)
        return row, served.running
    finally:
        await runner.cleanup()


def test_a_window_counts_its_own_tokens_and_closes_its_requests() -> None:
    row, running = asyncio.run(one_window())
    assert (row["C"], row["ok"], row["asked"], row["batch_mean"]) == (SIZE, SIZE, SIZE, SIZE)
    assert row["tokens_per_verify"] == TOKENS_A_STEP
    assert 0 < row["tok_s"] <= SIZE * TOKENS_A_STEP / STEP_S * 1.1, "no more than was written"
    assert running == 0
