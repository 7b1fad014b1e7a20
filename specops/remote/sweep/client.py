"""Client: sends the sweep's requests over one persistent session. Needs aiohttp."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

import aiohttp

from ..smoke.load import KEEP_IDLE_S
from .answer import Answer
from .spec import SweepSpec

Json = Any
READ_BYTES = 4 << 20
"""SGLang repeats the whole answer in each chunk of /generate."""
BROKEN = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, OSError)
PATHS = {"generate": "/generate", "completions": "/v1/completions", "chat": "/v1/chat/completions"}


class Hung(Exception):
    """No running request had a token for too long."""


class Client:
    """Use as an async context manager. `came` tells when what was just read had arrived."""

    def __init__(
        self, spec: SweepSpec, model: str = "default", came: Callable[[], float] = time.monotonic
    ) -> None:
        self.spec = spec
        self.model = model
        self._came = came
        self.running: set[Answer] = set()
        self.finished = 0
        key_env = spec.watch.api_key_env
        key = os.environ.get(key_env) if key_env else None
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._path = spec.url + PATHS[spec.api]

    async def __aenter__(self) -> Client:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_IDLE_S),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            headers=self._headers,
            read_bufsize=READ_BYTES,
            trace_configs=[_stamp_when_written()],
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._session.close()

    async def send(self, text: str, tokens: int, *, started: Answer | None = None) -> Answer:
        """One request to its end; what goes wrong is in the answer. `started` is filled where given."""
        answer = started or Answer(tokens, exact=self.spec.ignore_eos)
        self.running.add(answer)
        answer.sent = time.monotonic()
        body = self._body(text, tokens)
        try:
            try:
                await self._ask(body, answer)
            except BROKEN:
                if answer.first is not None:
                    raise
                await self._ask(body, answer)  # the server may have closed an idle connection just then
        except (aiohttp.ClientError, OSError, ValueError) as error:
            answer.error = f"{type(error).__name__}: {error}"
            answer.lost = isinstance(error, BROKEN)
        finally:
            answer.finish(max(answer.sent, self._came()))
            self.running.discard(answer)
            self.finished += 1
        return answer

    async def _ask(self, body: dict[str, Json], answer: Answer) -> None:
        async with self._session.post(self._path, json=body, trace_request_ctx=answer) as response:
            if response.status != 200:
                answer.error = f"HTTP {response.status}: {(await response.text())[:300]}"
                return
            async for data in response.content.iter_any():
                answer.feed(data, self._came())

    def _body(self, text: str, tokens: int) -> dict[str, Json]:
        eos = self.spec.ignore_eos
        if self.spec.api == "generate":
            sampling = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": eos}
            return {"text": text, "stream": True, "sampling_params": sampling}
        common = {
            "model": self.model,
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": eos,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
        if self.spec.api == "chat":
            return {**common, "messages": [{"role": "user", "content": text}]}
        return {**common, "prompt": text}

    async def wait(self, tasks: Iterable[asyncio.Future[Any]]) -> None:
        """Until all ended. Raises Hung once no running request has had a token for the gap; then, and when
        cancelled, what still runs is cancelled."""
        waiting = set(tasks)
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, timeout=0.5)
                for task in done:
                    task.result()
                self.heed_hang()
        finally:
            for task in waiting:
                task.cancel()
            if waiting:
                await asyncio.gather(*waiting, return_exceptions=True)

    def heed_hang(self) -> None:
        if self.hangs():
            raise Hung(
                f"no token for {self.spec.gap_s:.0f} s from any of {len(self.running)} running requests: "
                "the server hangs"
            )

    def hangs(self) -> bool:
        newest = max((answer.moved for answer in self.running), default=None)
        return newest is not None and time.monotonic() - newest > self.spec.gap_s


def _stamp_when_written() -> aiohttp.TraceConfig:
    """`sent` is when the body went out: of many requests that start together most wait for the others first,
    and a server cannot answer what is still here."""

    async def stamp(session: aiohttp.ClientSession, context: Any, sent: Any) -> None:
        context.trace_request_ctx.sent = time.monotonic()

    trace = aiohttp.TraceConfig()
    trace.on_request_chunk_sent.append(stamp)
    return trace
