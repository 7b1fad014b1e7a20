"""Load for a gated server: requests that cross the gate, victims, a soak; and what their streams say."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

WORDS = ["the", "license", "may", "import", "class", "return", "self", "you", "copy", "use", "of", "this"]

IN_PIECES = "0.5.5"
"""It and its posts stream in each chunk the ids since the one before; all others stream all of them. Chunks
that come together are one, and then ids are lost: what a stream said is compared by its text there."""


@dataclass(kw_only=True, slots=True)
class Answer:
    """One streamed request; `counts` are its completion tokens after each chunk."""

    counts: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    meta: dict[str, Any] = field(default_factory=dict)

    def take(self, event: dict[str, Any]) -> None:
        self.meta, self.tokens, self.text = event["meta_info"], event["output_ids"], event["text"]
        self.counts.append(self.meta["completion_tokens"])


class Client:
    def __init__(self, port: int, session: aiohttp.ClientSession, pieces: bool) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.pieces = pieces
        self.session = session

    async def ask(self, text: str, tokens: int, answer: Answer | None = None, **more: Any) -> Answer:
        """Stream one greedy request of exactly `tokens` tokens, unless `more` says otherwise.

        `answer` is filled while the stream runs. `more`: sampling parameters, or `body` for other fields.
        """
        # Where a stream loses ids, what nobody watches is asked for in one piece.
        streamed = answer is not None or not self.pieces
        answer = answer or Answer()
        body = {"text": text, "stream": streamed, **more.pop("body", {})}
        body["sampling_params"] = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True, **more}
        async with self.session.post(f"{self.url}/generate", json=body) as response:
            response.raise_for_status()
            if not streamed:
                answer.take(await response.json())
                return answer
            async for line in response.content:
                if line.startswith(b"data: {"):
                    answer.take(json.loads(line[6:]))
        return answer

    def agree(self, one: Answer, other: Answer) -> bool:
        """Whether both said the same words."""
        return one.text == other.text if self.pieces else one.tokens == other.tokens

    async def gate(self) -> dict[str, Any]:
        async with self.session.get(f"{self.url}/get_server_info") as response:
            gate: dict[str, Any] = (await response.json())["internal_states"][0]["speculative_gate"]
            return gate

    async def set_threshold(self, value: object) -> bool:
        body = {"server_args": {"speculative_disable_batch_threshold": value}}
        async with self.session.post(f"{self.url}/set_internal_state", json=body) as response:
            # From 0.5.16 on the web server itself turns down what is no number.
            return response.status == 200 and all(await response.json())

    async def metrics(self) -> dict[str, float]:
        """Samples of the first label set by name."""
        async with self.session.get(f"{self.url}/metrics") as response:
            lines = [line for line in (await response.text()).splitlines() if not line.startswith("#")]
        found: dict[str, float] = {}
        for line in lines:
            found.setdefault(line.split("{")[0].split(" ")[0], float(line.rsplit(" ", 1)[1]))
        return found

    async def tokens_held(self) -> int:
        """KV tokens in use once the idle server has flushed its cache."""
        for _ in range(20):
            async with self.session.post(f"{self.url}/flush_cache") as response:
                if response.status == 200:
                    break
            await asyncio.sleep(0.5)
        async with self.session.get(f"{self.url}/get_load") as response:
            if response.status == 200:
                return int((await response.json())[0]["num_tokens"])
        async with self.session.get(f"{self.url}/v1/loads") as response:  # alone since 0.5.21
            return int((await response.json())["loads"][0]["num_used_tokens"])


@asynccontextmanager
async def client(port: int, release: str = "") -> AsyncIterator[Client]:
    # No kept connections: an idle one that the server closes looks like a failed request.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(
        connector=connector, timeout=aiohttp.ClientTimeout(total=300), read_bufsize=1 << 20
    ) as session:
        yield Client(port, session, pieces=release.startswith(IN_PIECES))


def prompt(chance: random.Random, words: int) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(words))


def crossing_prompts(count: int = 32) -> list[tuple[str, int]]:
    """(text, tokens): long enough that each request lives on both sides of the gate."""
    chance = random.Random(7)
    return [(prompt(chance, chance.randint(4, 40)), 120 + 20 * (number % 4)) for number in range(count)]


async def ask_in_waves(server: Client, prompts: Sequence[tuple[str, int]], wave: int = 8) -> list[Answer]:
    """Start a wave's requests a few tokens apart and the next wave when two of it are left.

    The running batch then rises over the gate and falls below it within each request's life.
    """
    answers: list[Answer] = []
    tasks: list[asyncio.Task[Answer]] = []
    for first in range(0, len(prompts), wave):
        for text, tokens in prompts[first : first + wave]:
            answer = Answer()
            answers.append(answer)
            tasks.append(asyncio.create_task(server.ask(text, tokens, answer)))
            while len(answer.counts) < 4:
                await asyncio.sleep(0.002)
        while sum(not task.done() for task in tasks) > 2:
            await asyncio.sleep(0.01)
    await asyncio.gather(*tasks)
    return answers


def crossed(answer: Answer, run: int = 12) -> bool:
    """The stream holds at least `run` one-token steps in a row and, elsewhere, a step of several tokens."""
    steps = [later - earlier for earlier, later in itertools.pairwise(answer.counts)]
    ones = "".join("1" if step == 1 else "-" for step in steps)
    return "1" * run in ones and any(step > 1 for step in steps)


def accept_length(answer: Answer, first: int, last: int, longest: int) -> float:
    """Tokens a step between two token counts; a chunk of more than `longest` tokens is several steps."""
    counts = [count for count in answer.counts if first <= count <= last]
    steps = sum(-(-(b - a) // longest) for a, b in itertools.pairwise(counts))
    return (counts[-1] - counts[0]) / max(1, steps)


async def disturb_victim(server: Client, seed: int, longest: int) -> dict[str, Any]:
    """A long request, nine joiners for 110 tokens, then the same request alone: the same tokens, compared."""
    chance = random.Random(seed)
    text, victim = prompt(chance, 20), Answer()
    task = asyncio.create_task(server.ask(text, 600, victim))
    while not victim.counts or victim.counts[-1] < 120:
        await asyncio.sleep(0.005)
    joined = victim.counts[-1]
    await asyncio.gather(*[server.ask(prompt(chance, chance.randint(5, 30)), 110) for _ in range(9)])
    left = victim.counts[-1]
    await task
    cut = min(count for count in victim.counts if count >= left + 8)
    # A new request on the cached prefix whose end was written while the gate was closed.
    async with server.session.post(
        f"{server.url}/tokenize", json={"model": "tiny", "prompt": text, "add_special_tokens": False}
    ) as response:
        ids = (await response.json())["tokens"] + await first_tokens(server, victim, text, left)
    follow = await server.ask("", 60, Answer(), body={"input_ids": ids, "text": None})
    alone = await server.ask(text, 600, Answer())
    after = accept_length(victim, cut, cut + 75, longest)
    same = accept_length(alone, cut, cut + 75, longest)
    return {
        "seed": seed,
        "gap_tokens": left - joined,
        "before": round(accept_length(victim, 20, joined, longest), 2),
        "closed": round(accept_length(victim, joined + 20, left - 5, longest), 2),
        "after": round(after, 2),
        "alone": round(same, 2),
        "ratio": round(after / same, 3),
        "follow_up": round(accept_length(follow, 0, 60, longest), 2),
        "same_text": server.agree(victim, alone),
    }


async def first_tokens(server: Client, victim: Answer, text: str, count: int) -> list[int]:
    """The first ids of an answer; asked for again in one piece where its stream may have lost some."""
    return ((await server.ask(text, count)) if server.pieces else victim).tokens[:count]


async def soak(server: Client, seconds: float) -> Counter[str]:
    """C from 1 to 16, streamed and not, some cut off by the client, some sampled, a crossing each round."""
    chance, seen = random.Random(3), Counter[str]()
    end = asyncio.get_running_loop().time() + seconds

    async def one() -> None:
        body = {
            "model": "tiny",
            "messages": [{"role": "user", "content": prompt(chance, chance.randint(1, 60))}],
            "max_tokens": chance.randint(1, 48),
            "temperature": chance.choice([0, 0, 0.7]),
            "frequency_penalty": chance.choice([0, 0, 0, 0.5]),
            "stop": chance.choice([None, None, " self"]),
            "stream": chance.random() < 0.5,
        }
        patience = aiohttp.ClientTimeout(total=chance.choice([120, 120, 120, 0.3]))
        try:
            async with server.session.post(
                f"{server.url}/v1/chat/completions", json=body, timeout=patience
            ) as response:
                await response.read()
                seen["ok" if response.status == 200 else "failed"] += 1
        except TimeoutError:
            seen["aborted" if patience.total == 0.3 else "failed"] += 1
        except aiohttp.ClientError:
            seen["failed"] += 1

    while asyncio.get_running_loop().time() < end:
        for size in (chance.choice([1, 2, 3, 5]), chance.choice([6, 8, 10, 16])):
            await asyncio.gather(*[one() for _ in range(size)])
    return seen
