"""One level after another against a running server. Needs aiohttp alone.

A level is a wave or a window. A wave: C requests of equal length, started together, so that the running batch
is C from the last prefill to the end; its throughput is all tokens over its wall time. A window: C requests
that run for longer than it; its throughput is the tokens that came within it, and no prefill is part of it.
"""

from __future__ import annotations

import asyncio
import random
import re
import statistics
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import aiohttp

KEY = "speculative_disable_batch_threshold"
PROMPT_TOKENS = 64
LOOK_S = 0.25
READ_BYTES = 1 << 20
SETTLE_S = 0.5
"""From the first token of the last request to the window."""
FIRST_TOKEN_S = 60.0
LONGEST, ROOM = 3000, 100_000
"""Tokens of one request, and of all requests of a level, where the window ends a request."""
BLOCKS = 3
TOKENS = re.compile(rb'"completion_tokens": ?(\d+)')
VERIFIES = re.compile(rb'"spec_verify_ct": ?(\d+)')
"""Looked for in the raw line: each repeats the whole answer, and a client has no time to parse all of it."""


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


@dataclass
class Flow:
    """One request that runs through a window, and every time that the server said how far it is."""

    said: list[tuple[float, int, int]] = field(default_factory=list)
    """(monotonic time, tokens, verifications) of each line that came."""
    ended: str = ""
    """Why it is over; empty while it runs."""
    rid: str = field(default_factory=lambda: uuid.uuid4().hex)

    async def run(self, session: aiohttp.ClientSession, url: str, tokens: int) -> None:
        body = {
            "rid": self.rid,
            "input_ids": [random.randrange(300, 900) for _ in range(PROMPT_TOKENS)],
            "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True},
            "stream": True,
        }
        try:
            async with session.post(f"{url}/generate", json=body) as response:
                if response.status != 200:
                    self.ended = f"{response.status}: {(await response.text())[:200]}"
                    return
                async for line in response.content:
                    if found := TOKENS.search(line):
                        verified = VERIFIES.search(line)
                        steps = int(verified.group(1)) if verified else 0
                        self.said.append((time.monotonic(), int(found.group(1)), steps))
            self.ended = "it came to its end"
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self.ended = f"{type(error).__name__}: {error}"

    def rates(self, began: float, until: float) -> tuple[float, float]:
        """Tokens and verifications a second, between the first and the last line within that time: lines
        come every few tokens, so that counting them up to a given moment would be off by one line."""
        within = [each for each in self.said if began <= each[0] <= until]
        if len(within) < 2:
            return 0.0, 0.0
        (first, tokens, steps), (last, more, later) = within[0], within[-1]
        return (more - tokens) / (last - first), (later - steps) / (last - first)


async def window(session: aiohttp.ClientSession, url: str, size: int, seconds: float) -> dict[str, Any]:
    """Aborts its requests at the end; the next level waits until they are gone.

    Raises RuntimeError, with the server's words, if a request ended before its window did.
    """
    flows, seen = [Flow() for _ in range(size)], list[int]()
    tasks = [asyncio.create_task(flow.run(session, url, tokens_for(size))) for flow in flows]
    watcher = asyncio.create_task(watch_batch(session, url, seen))
    try:
        until = time.monotonic() + FIRST_TOKEN_S
        while not all(flow.said or flow.ended for flow in flows) and time.monotonic() < until:
            await asyncio.sleep(0.02)
        await asyncio.sleep(SETTLE_S)
        seen.clear()
        began = time.monotonic()
        await asyncio.sleep(seconds)
        ended = time.monotonic()
        over = [flow.ended for flow in flows if flow.ended]
    finally:
        await abort(session, url, flows)
        for task in (watcher, *tasks):
            task.cancel()
        await asyncio.gather(watcher, *tasks, return_exceptions=True)
        await until_idle(session, url)
    if over:
        raise RuntimeError(f"C={size}: {len(over)} requests ended before their window did: {over[0]}")
    return {"C": size, "asked": size, **read_window(flows, began, ended, seen), "window_s": seconds}


def read_window(flows: Sequence[Flow], began: float, ended: float, seen: Sequence[int]) -> dict[str, Any]:
    """`blocks` is the throughput of each third of the window, for an interval of its own."""
    rates = [flow.rates(began, ended) for flow in flows]
    made, steps = sum(each[0] for each in rates), sum(each[1] for each in rates)
    cuts = [began + (ended - began) * part / BLOCKS for part in range(BLOCKS + 1)]
    blocks = [sum(flow.rates(*pair)[0] for flow in flows) for pair in pairwise(cuts)]
    return {
        "tok_s": round(made, 1),
        "blocks": [round(value, 1) for value in blocks],
        "ok": sum(each[0] > 0 for each in rates),
        "batch_mean": round(statistics.fmean(seen), 2) if seen else None,
        "tokens_per_verify": round(made / steps, 3) if steps else None,
        "wall_s": round(ended - began, 3),
    }


async def abort(session: aiohttp.ClientSession, url: str, flows: Sequence[Flow]) -> None:
    """Ends them on the server: some releases let a stream that nobody reads run to its end."""
    for flow in flows:
        async with session.post(f"{url}/abort_request", json={"rid": flow.rid}) as answer:
            answer.raise_for_status()


def tokens_for(size: int) -> int:
    """To ask for where the window ends a request: what arrives together is admitted as far as the pool holds
    all of it, prompts and every token asked for, and a level whose requests wait for others is no level."""
    return min(LONGEST, ROOM // size - PROMPT_TOKENS)


async def until_idle(session: aiohttp.ClientSession, url: str) -> None:
    """Raises RuntimeError where requests still run long after they were closed."""
    until = time.monotonic() + FIRST_TOKEN_S
    while time.monotonic() < until:
        async with session.get(f"{url}/get_load") as response:
            if sum(each["num_reqs"] for each in await response.json()) == 0:
                return
        await asyncio.sleep(0.05)
    raise RuntimeError("requests that were closed still run")


async def set_threshold(session: aiohttp.ClientSession, url: str, threshold: int) -> None:
    async with session.post(f"{url}/set_internal_state", json={"server_args": {KEY: threshold}}) as response:
        if not all(await response.json()):
            raise RuntimeError(f"the server did not take threshold {threshold}")


async def measure(
    url: str,
    arms: Mapping[str, int | None],
    levels: Sequence[int],
    repeats: int,
    tokens: int,
    window_s: float | None = None,
) -> list[dict[str, Any]]:
    """A row a wave, or a window where that has a length. The arms of a level follow each other at once, so
    that drift meets all of them; an arm's value is its threshold, None for a server without one to set."""
    rows = []
    timeout, connector = aiohttp.ClientTimeout(total=300), aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(
        timeout=timeout, connector=connector, read_bufsize=READ_BYTES
    ) as session:
        await wave(session, url, levels[-1], 32)
        for repeat in range(repeats):
            for size in levels:
                for arm, threshold in arms.items():
                    if threshold is not None:
                        await set_threshold(session, url, threshold)
                    if window_s is None:
                        row = await wave(session, url, size, tokens)
                    else:
                        row = await window(session, url, size, window_s)
                    rows.append({"arm": arm, "threshold": threshold, "repeat": repeat, **row})
    return rows
