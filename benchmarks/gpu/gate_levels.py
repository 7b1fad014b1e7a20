"""Closed-loop levels against one arm of a server, a JSON line each; or their table. Needs aiohttp alone."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from pathlib import Path
from typing import Any

import aiohttp

KEY = "speculative_disable_batch_threshold"


async def ask(session: aiohttp.ClientSession, url: str, tokens: int) -> tuple[int, int]:
    """(completion tokens, target steps); (0, 0) for a request that failed."""
    body = {
        "input_ids": [random.randrange(300, 7000) for _ in range(64)],
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
        await asyncio.sleep(0.25)
        async with session.get(f"{url}/get_load") as response:
            seen.append((await response.json())[0]["num_reqs"])


async def level(session: aiohttp.ClientSession, url: str, size: int, tokens: int) -> dict[str, Any]:
    left, answers, seen = list(range(2 * size)), [], list[int]()

    async def loop() -> None:
        while left:
            left.pop()
            answers.append(await ask(session, url, tokens))

    watcher = asyncio.create_task(watch_batch(session, url, seen))
    started = time.monotonic()
    await asyncio.gather(*[loop() for _ in range(size)])
    wall_s = time.monotonic() - started
    watcher.cancel()
    made, steps = sum(answer[0] for answer in answers), sum(answer[1] for answer in answers)
    return {
        "C": size,
        "tok_s": round(made / wall_s, 1),
        "ok": sum(answer[0] > 0 for answer in answers),
        "asked": len(answers),
        "batch_mean": round(statistics.fmean(seen), 2) if seen else None,
        "tokens_per_verify": round(made / steps, 3) if steps else None,
    }


async def run(options: argparse.Namespace) -> None:
    timeout, connector = aiohttp.ClientTimeout(total=300), aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        threshold = None if options.threshold == "none" else int(options.threshold)
        if threshold is not None:
            body = {"server_args": {KEY: threshold}}
            async with session.post(f"{options.url}/set_internal_state", json=body) as response:
                if not all(await response.json()):
                    raise SystemExit(f"the server did not take threshold {threshold}")
        await level(session, options.url, 2, 32)
        with options.out.open("a", encoding="utf-8") as out:
            for repeat in range(options.repeats):
                for size in map(int, options.levels.split(",")):
                    row = await level(session, options.url, size, options.tokens)
                    row = {"arm": options.arm, "threshold": threshold, "repeat": repeat, **row}
                    out.write(json.dumps(row) + "\n")
                    out.flush()


def table(rows: list[dict[str, Any]]) -> None:
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    print("C".rjust(4), *[arm.rjust(22) for arm in arms])
    for size in sorted({row["C"] for row in rows}):
        cells = []
        for arm in arms:
            found = [row for row in rows if row["C"] == size and row["arm"] == arm]
            speeds = "/".join(f"{row['tok_s']:.0f}" for row in found)
            bad = sum(row["asked"] - row["ok"] for row in found)
            cells.append((speeds + (f" ({bad} failed)" if bad else "")).rjust(22))
        print(str(size).rjust(4), *cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--url")
    parser.add_argument("--arm")
    parser.add_argument("--threshold", default="none")
    parser.add_argument("--levels", default="1,2,5,6,10,30,64")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=192)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.table:
        table([json.loads(line) for line in options.table.read_text(encoding="utf-8").splitlines()])
    else:
        asyncio.run(run(options))


if __name__ == "__main__":
    main()
