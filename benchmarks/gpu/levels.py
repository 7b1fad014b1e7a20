"""One level after another against a running server. Needs aiohttp alone.

A level is one wave: C requests of equal length, started together, so that the running batch is C from the
last prefill to the end. Its throughput is all tokens over the wall time of the wave.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp

KEY = "speculative_disable_batch_threshold"
PROMPT_TOKENS = 64
LOOK_S = 0.25


async def ask(session: aiohttp.ClientSession, url: str, tokens: int) -> tuple[int, int]:
    """(completion tokens, verify steps); (0, 0) for a request that failed."""
    body = {
        "input_ids": [random.randrange(300, 3900) for _ in range(PROMPT_TOKENS)],
        "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True},
    }
    try:
        async with session.post(f"{url}/generate", json=body) as response:
            response.raise_for_status()
            meta = (await response.json())["meta_info"]
            return meta["completion_tokens"], meta.get("spec_verify_ct") or 0
    except (aiohttp.ClientError, TimeoutError, KeyError):
        return 0, 0


async def watch_batch(session: aiohttp.ClientSession, url: str, seen: list[int]) -> None:
    while True:
        await asyncio.sleep(LOOK_S)
        async with session.get(f"{url}/get_load") as response:
            seen.append((await response.json())[0]["num_reqs"])


async def wave(session: aiohttp.ClientSession, url: str, size: int, tokens: int) -> dict[str, Any]:
    seen: list[int] = []
    watcher = asyncio.create_task(watch_batch(session, url, seen))
    started = time.monotonic()
    answers = await asyncio.gather(*[ask(session, url, tokens) for _ in range(size)])
    wall_s = time.monotonic() - started
    watcher.cancel()
    await asyncio.gather(watcher, return_exceptions=True)
    made, steps = sum(answer[0] for answer in answers), sum(answer[1] for answer in answers)
    return {
        "C": size,
        "tok_s": round(made / wall_s, 1),
        "ok": sum(answer[0] == tokens for answer in answers),
        "asked": size,
        "batch_mean": round(statistics.fmean(seen), 2) if seen else None,
        "tokens_per_verify": round(made / steps, 3) if steps else None,
        "wall_s": round(wall_s, 3),
    }


async def set_threshold(session: aiohttp.ClientSession, url: str, threshold: int) -> None:
    async with session.post(f"{url}/set_internal_state", json={"server_args": {KEY: threshold}}) as response:
        if not all(await response.json()):
            raise RuntimeError(f"the server did not take threshold {threshold}")


async def measure(
    url: str, arms: Mapping[str, int | None], levels: Sequence[int], repeats: int, tokens: int
) -> list[dict[str, Any]]:
    """A row a wave. The arms of a level follow each other at once, so that drift meets all of them;
    an arm's value is its threshold, None for a server without a gate to set."""
    rows = []
    timeout, connector = aiohttp.ClientTimeout(total=300), aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        await wave(session, url, levels[-1], 32)
        for repeat in range(repeats):
            for size in levels:
                for arm, threshold in arms.items():
                    if threshold is not None:
                        await set_threshold(session, url, threshold)
                    row = await wave(session, url, size, tokens)
                    rows.append({"arm": arm, "threshold": threshold, "repeat": repeat, **row})
    return rows
