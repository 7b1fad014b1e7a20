"""A server whose token times are exactly known: SGLang's interfaces, with a clock for a model.

`serve(...)` runs it in processes of their own that share one port. Each process writes a line a request with
when the request could be read and when each chunk was written: the truth that load generators are held to.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specops.remote.sweep.arrival import Arrivals, run

Json = Any
ALWAYS_ON = False
"""Speculating without a gate: no threshold to be seen or set."""
MODEL = "reference"
GOLDEN = (math.sqrt(5) - 1) / 2
"""Multiples of it, modulo one, are spread evenly however many there are."""
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
INFO = {
    "version": "0.5.18",
    "max_running_requests": 1024,
    "decode_log_interval": 10,
    "model_path": MODEL,
    "internal_states": [{"speculative_num_steps": 0, "effective_max_running_requests_per_dp": 1024}],
}


@dataclass
class Pace:
    ttft_s: float
    itl_s: float
    tokens_per_chunk: int
    cross: int = 0
    """With a gate: while open a token takes half the time when alone, and as long as closed at this batch."""
    spread: bool = False
    """Requests that come together have their tokens evenly over the time of one, instead of all at once."""

    def first_s(self, number: int) -> float:
        """TTFT of a process's request with this number."""
        return self.ttft_s + self.itl_s * (number * GOLDEN % 1) if self.spread else self.ttft_s

    def token_s(self, state: dict[str, int]) -> float:
        running = state["running"]
        if not self.cross or (running > state["threshold"] and not ALWAYS_ON):
            return self.itl_s
        return self.itl_s * (0.5 + 0.5 * running / self.cross)


class Served(asyncio.Protocol):
    """One connection; requests on it come one after the other."""

    def __init__(self, pace: Pace, truth: Any, state: dict[str, int], arrivals: Arrivals) -> None:
        self.pace, self.truth, self.state, self.arrivals = pace, truth, state, arrivals
        self.buffer = b""
        self.alive = True

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, error: Exception | None) -> None:
        self.alive = False

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while True:
            head, found, rest = self.buffer.partition(b"\r\n\r\n")
            if not found:
                return
            match = re.search(rb"(?i)content-length: *(\d+)", head)
            length = int(match.group(1)) if match else 0
            if len(rest) < length:
                return
            self.buffer = rest[length:]
            self.handle(head.split(b" ", 2)[1].decode(), rest[:length])

    def handle(self, path: str, body: bytes) -> None:
        came = self.arrivals.newest  # what waits in this process for its turn is time of the server
        plain = path.partition("?")[0].rstrip("/")
        if plain in ("/generate", "/v1/completions", "/v1/chat/completions"):
            asyncio.ensure_future(self.answer(plain, json.loads(body), came))  # noqa: RUF006
        elif plain == "/metrics":
            running = self.state["running"]
            total = self.state["total"]
            self.page(f"sglang:num_running_reqs {running}\nsglang:num_requests_total {total}\n".encode())
        elif plain == "/v1/models":
            self.page(json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode())
        elif plain in ("/server_info", "/get_server_info"):
            self.page(json.dumps(self.info()).encode())
        elif plain == "/set_internal_state":
            asked = json.loads(body)["server_args"]
            self.state["threshold"] = int(asked["speculative_disable_batch_threshold"])
            self.page(b"[true]")
        else:
            self.page(json.dumps({"model_path": MODEL, "is_generation": True}).encode())

    def info(self) -> Json:
        if not self.pace.cross or ALWAYS_ON:
            return INFO
        threshold = self.state["threshold"]
        word = "open" if self.state["running"] <= threshold else "closed"
        return {**INFO, "internal_states": [{"speculative_gate": {"threshold": threshold, "state": word}}]}

    def page(self, body: bytes) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body)

    async def answer(self, path: str, asked: Json, came: float) -> None:
        sampling = asked.get("sampling_params") or {}
        tokens = int(
            sampling.get("max_new_tokens")
            or asked.get("max_completion_tokens")
            or asked.get("max_tokens")
            or 16
        )
        self.state["running"] += 1
        self.state["came"] += 1
        wrote: list[tuple[float, int]] = []
        loop = asyncio.get_running_loop()
        streamed = bool(asked.get("stream"))
        if streamed:
            self.transport.write(HEAD)
        due, done = came + self.pace.first_s(self.state["came"]), 0
        while done < tokens and self.alive:
            await sleep_until(loop, due)
            done = min(tokens, done + (1 if not wrote else self.pace.tokens_per_chunk))
            wrote.append((time.monotonic(), done))  # before: whoever reads it may be faster than the return
            if streamed:
                self.write(event_of(path, asked, done, tokens))
            due += self.pace.token_s(self.state) * self.pace.tokens_per_chunk
        self.state["running"] -= 1
        self.state["total"] += 1
        if not self.alive:
            return
        if streamed:
            self.end(path, asked, tokens)
        else:
            self.page(json.dumps(whole_of(path, tokens)).encode())
        self.truth.write(json.dumps({"came": came, "wrote": wrote, "tokens": tokens}) + "\n")
        self.truth.flush()

    def write(self, event: bytes) -> None:
        data = b"data: " + event + b"\n\n"
        self.transport.write(b"%x\r\n" % len(data) + data + b"\r\n")

    def end(self, path: str, asked: Json, tokens: int) -> None:
        if path != "/generate" and (asked.get("stream_options") or {}).get("include_usage"):
            self.write(json.dumps({**envelope(path), "choices": [], "usage": usage(tokens)}).encode())
        self.write(b"[DONE]")
        self.transport.write(b"0\r\n\r\n")


async def sleep_until(loop: asyncio.AbstractEventLoop, due: float) -> None:
    left = due - time.monotonic()
    if left > 0:
        await asyncio.sleep(left)


def usage(done: int) -> Json:
    return {"prompt_tokens": 8, "completion_tokens": done, "total_tokens": 8 + done}


def envelope(path: str) -> Json:
    kind = "chat.completion.chunk" if path.endswith("chat/completions") else "text_completion"
    return {"id": "r", "object": kind, "created": 0, "model": MODEL}


def event_of(path: str, asked: Json, done: int, tokens: int) -> bytes:
    last = done == tokens
    if path == "/generate":
        meta = {
            "id": "r",
            "finish_reason": {"type": "length", "length": tokens} if last else None,
            "prompt_tokens": 8,
            "completion_tokens": done,
            "cached_tokens": 0,
        }
        return json.dumps({"text": " tok" * done, "output_ids": [1], "meta_info": meta}).encode()
    reason = "length" if last else None
    choice: Json = {"index": 0, "finish_reason": reason, "logprobs": None}
    if path.endswith("chat/completions"):
        choice["delta"] = {"role": "assistant", "content": " tok"}
    else:
        choice["text"] = " tok"
    found: Json = {**envelope(path), "choices": [choice]}
    if (asked.get("stream_options") or {}).get("continuous_usage_stats"):
        found["usage"] = usage(done)
    return json.dumps(found).encode()


def whole_of(path: str, tokens: int) -> Json:
    if path == "/generate":
        meta = {"prompt_tokens": 8, "completion_tokens": tokens, "finish_reason": {"type": "length"}}
        return {"text": " tok" * tokens, "meta_info": meta}
    message: Json = {"index": 0, "finish_reason": "length", "text": " tok" * tokens}
    if path.endswith("chat/completions"):
        message["message"] = {"role": "assistant", "content": " tok" * tokens}
    return {**envelope(path), "choices": [message], "usage": usage(tokens)}


async def run_process(port: int, pace: Pace, truth: Path, arrivals: Arrivals) -> None:
    loop = asyncio.get_running_loop()
    state = {"running": 0, "came": 0, "total": 0, "threshold": pace.cross}
    with truth.open("a", encoding="utf-8") as file:
        server = await loop.create_server(
            lambda: Served(pace, file, state, arrivals), "127.0.0.1", port, reuse_port=True, backlog=1024
        )
        stop = asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        await stop.wait()
        server.close()


@contextlib.contextmanager
def serve(
    port: int,
    folder: Path,
    *,
    ttft_s: float,
    itl_s: float,
    tokens_per_chunk: int = 1,
    processes: int = 1,
    cross: int = 0,
    spread: bool = False,
) -> Iterator[Path]:
    """While the block runs; the folder with the truth is given."""
    folder.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "benchmarks.reference_server", *(["--spread"] if spread else ())]
    argv += [str(port), str(ttft_s), str(itl_s)]
    root = Path(__file__).resolve().parents[1]
    env = {**os.environ, "PYTHONPATH": str(root)}
    started = [
        subprocess.Popen(
            [*argv, str(tokens_per_chunk), str(cross), str(folder / f"{n}.jsonl")], cwd=root, env=env
        )
        for n in range(processes)
    ]
    try:
        await_listening(port, started)
        yield folder
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()


def await_listening(port: int, started: list[subprocess.Popen[bytes]]) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end and all(process.poll() is None for process in started):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    time.sleep(0.3)  # the others of the same port


def read_truth(folder: Path) -> list[Json]:
    """One {came, wrote: [[monotonic seconds, tokens so far]], tokens} a finished request."""
    files = sorted(folder.glob("*.jsonl"))
    rows = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    return sorted(rows, key=lambda row: row["came"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("ttft", type=float)
    parser.add_argument("itl", type=float)
    parser.add_argument("tokens_per_chunk", type=int)
    parser.add_argument("cross", type=int)
    parser.add_argument("truth", type=Path)
    parser.add_argument("--spread", action="store_true")
    asked = parser.parse_args()
    pace = Pace(asked.ttft, asked.itl, asked.tokens_per_chunk, asked.cross, asked.spread)
    arrivals = Arrivals()
    run(run_process(asked.port, pace, asked.truth, arrivals), arrivals)


if __name__ == "__main__":
    main()
