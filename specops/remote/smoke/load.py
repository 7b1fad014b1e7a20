"""Load: streamed requests, each a record of when how many tokens had come. Needs aiohttp."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from .spec import Spec
from .verdict import Judged, failed

Json = Any
Timeout = asyncio.TimeoutError
"""Python 3.10 has one of its own."""
KEEP_IDLE_S = 2.0
"""SGLang closes a connection that was idle for 5 s: a request that is sent on it just then is lost."""
READ_BYTES = 4 << 20
"""SGLang repeats the whole answer in each chunk: a line outgrows aiohttp's default of 64 KiB."""


@dataclass(frozen=True)
class Chunk:
    at: float
    """Monotonic seconds."""
    tokens: int
    """Completion tokens so far, by the server's count."""
    verifies: int | None
    """spec_verify_ct so far, where this release sends it before the end."""


@dataclass
class Stream:
    """One request, filled while it runs."""

    prompt: str
    asked: int
    """Tokens; end-of-text is ignored, so an answer has just as many."""
    started: float = field(default_factory=time.monotonic)
    chunks: list[Chunk] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    text: str = ""
    meta: dict[str, Json] = field(default_factory=dict)
    error: str = ""
    ended: float | None = None

    @property
    def tokens(self) -> int:
        return self.chunks[-1].tokens if self.chunks else 0

    @property
    def moved(self) -> float:
        """When its newest token came; its start while it has none."""
        return self.chunks[-1].at if self.chunks else self.started

    @property
    def problem(self) -> str:
        """Why it is not a good answer; empty if it is one."""
        if self.error:
            return self.error
        if self.ended is None:
            return "it has not ended"
        if self.tokens != self.asked:
            return f"{self.tokens} tokens came of {self.asked} asked"
        kind = (self.meta.get("finish_reason") or {}).get("type")
        return "" if kind in (None, "length", "stop") else f"finish reason {kind}"

    def take(self, event: dict[str, Json]) -> None:
        if "error" in event:
            self.error = _error_words(event["error"])
            return
        self.meta = event.get("meta_info") or {}
        count = int(self.meta.get("completion_tokens") or 0)
        self._take_words(event.get("output_ids") or [], event.get("text") or "", count)
        if count > self.tokens:
            verifies = self.meta.get("spec_verify_ct")
            self.chunks.append(Chunk(time.monotonic(), count, int(verifies) if verifies else None))

    def _take_words(self, ids: list[int], text: str, count: int) -> None:
        """A line repeats the whole answer, or brings what is new: the ids on 0.5.5 and its posts, both with
        --incremental-streaming-output. Pieces that came together are one, with the ids of the last alone:
        then there are none that could be compared."""
        if len(ids) >= count:
            self.ids = ids
        else:
            self.ids = [*self.ids, *ids] if len(self.ids) + len(ids) == count else []
        self.text = text if text.startswith(self.text) else self.text + text


def _error_words(error: Json) -> str:
    text = error.get("message") if isinstance(error, dict) else error
    return f"the server answered: {str(text)[:300]}"


class Client:
    """The server under test. Use as an async context manager."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.running: list[Stream] = []
        self.finished = 0
        """Own requests that ended, for telling others' from ours."""
        key = os.environ.get(spec.api_key_env or "") if spec.api_key_env else None
        self.has_key = bool(key)
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    async def __aenter__(self) -> Client:
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_IDLE_S),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            headers=self._headers,
            read_bufsize=READ_BYTES,
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.session.close()

    def start(self, prompt: str, tokens: int) -> tuple[Stream, asyncio.Task[None]]:
        stream = Stream(prompt=prompt, asked=tokens)
        self.running.append(stream)
        return stream, asyncio.ensure_future(self._run(stream))

    async def _run(self, stream: Stream) -> None:
        sampling = {"max_new_tokens": stream.asked, "temperature": 0, "ignore_eos": True}
        sampling["stream_interval"] = 1  # whatever the server's own: a step is what is looked at
        body = {"text": stream.prompt, "stream": True, "sampling_params": sampling}
        try:
            async with self.session.post(f"{self.spec.url}/generate", json=body) as response:
                if response.status != 200:
                    stream.error = f"HTTP {response.status}: {(await response.text())[:300]}"
                    return
                async for line in response.content:
                    if line.startswith(b"data:") and b"[DONE]" not in line:
                        stream.take(json.loads(line[5:]))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            stream.error = f"{type(error).__name__}: {error}"
        finally:
            stream.ended = time.monotonic()
            self.running.remove(stream)
            self.finished += 1

    async def wait(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        """Until all ended. Raises Judged (fail) once no request has had a token for the gap."""
        waiting = set(tasks)
        try:
            while waiting:
                _, waiting = await asyncio.wait(waiting, timeout=0.1)
                self.heed_hang()
        finally:
            for task in waiting:
                task.cancel()

    async def until(self, streams: list[Stream], tokens: int) -> None:
        """Until each stream has `tokens` tokens (or ended)."""
        while any(stream.ended is None and stream.tokens < tokens for stream in streams):
            await asyncio.sleep(0.005)
            self.heed_hang()

    def heed_hang(self) -> None:
        gap = self.spec.token_gap_s
        stuck = [stream for stream in self.running if time.monotonic() - stream.moved > gap]
        if stuck:
            raise Judged(
                failed(
                    f"no token for {gap:.0f} s from {len(stuck)} of {len(self.running)} running requests: "
                    "the server hangs",
                    tokens=[stream.tokens for stream in stuck],
                )
            )

    async def get_json(self, path: str, timeout_s: float = 10.0) -> Json:
        """None where the server has no such page or does not answer in time."""
        text = await self.get_text(path, timeout_s)
        try:
            return json.loads(text) if text else None
        except ValueError:
            return None

    async def get_text(self, path: str, timeout_s: float = 10.0) -> str:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self.session.get(self.spec.url + path, timeout=timeout) as response:
                return await response.text() if response.status == 200 else ""
        except (aiohttp.ClientError, OSError, Timeout):
            return ""
