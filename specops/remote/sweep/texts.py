"""Texts: each request's own prompt, so that no answer comes out of the prefix cache."""

from __future__ import annotations

import random
from typing import Any

from ..prompts import PROMPTS
from .client import Client
from .spec import Run, SweepSpec

Json = Any
WORDS = sorted(
    {word.strip(".,:;()`'\"") for text in PROMPTS for word in text.split() if word.isascii()} - {""}
)
TRIAL_WORDS = 200


class Texts:
    """The same run of the same sweep gets the same texts."""

    def __init__(self, spec: SweepSpec, words_a_token: float = 0.7) -> None:
        self.spec = spec
        self.words_a_token = words_a_token
        """For random prompts; measured by `calibrate`."""
        self._sent = 0

    async def calibrate(self, client: Client) -> None:
        """Ask the server how many tokens a number of random words is; it has the tokenizer."""
        if self.spec.prompt_tokens is None:
            return
        answer = await client.send(_words(random.Random(0), TRIAL_WORDS), 1)  # noqa: S311
        tokens = answer.meta.get("prompt_tokens")
        if isinstance(tokens, int) and tokens > 0:
            self.words_a_token = TRIAL_WORDS / tokens

    def next(self, run: Run) -> str:
        """Begins with what no other request begins with."""
        number = self._sent
        self._sent += 1
        mark = f"[{self.spec.seed}.{run.number}.{number}]"
        if self.spec.prompt_tokens is None:
            texts = self.spec.watch.prompts
            return f"{mark} {texts[number % len(texts)]}"
        chance = random.Random(f"{self.spec.seed}/{number}")  # noqa: S311 - lengths, no secret
        tokens = chance.randint(*self.spec.prompt_tokens)
        return f"{mark} {_words(chance, max(1, round(tokens * self.words_a_token)))}"


def _words(chance: random.Random, count: int) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(count))
