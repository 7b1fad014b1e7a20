"""The sweep's load: bytes to figures without a server, and whole sweeps against one that keeps exact time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.reference_server import HEAD, read_truth, serve
from specops.connect.payload import agent_zip
from specops.remote.sweep.answer import Answer
from specops.remote.sweep.arrival import Arrivals, run
from specops.remote.sweep.client import Client
from specops.remote.sweep.figures import Span, compute, weighted_spread
from specops.remote.sweep.spec import parse_sweep
from tests.unit.remote.servers import free_port

Json = dict[str, Any]
NASTY = 'he said \\"completion_tokens\\":99, then\\n\\ndata: {\\"error\\": 1} é'


def stream_of(counts: list[int]) -> bytes:
    """As SGLang's /generate sends it."""
    lines = []
    for count in counts:
        reason = '{"type": "length"}' if count == counts[-1] else "null"
        meta = f'"finish_reason": {reason}, "completion_tokens": {count}, "spec_verify_ct": 2'
        lines.append(f'data: {{"text": "{NASTY}", "meta_info": {{{meta}}}}}\n\n')
    return ("".join(lines) + "data: [DONE]\n\n").encode()


def test_an_answer_is_the_same_wherever_its_bytes_are_cut() -> None:
    data = stream_of([1, 3, 7])
    for cut in range(1, len(data)):
        answer = Answer(7, exact=True)
        answer.feed(data[:cut], 1.0)
        answer.feed(data[cut:], 2.0)
        answer.finish(3.0)
        assert answer.problem == "", (cut, answer.problem)
        assert answer.count == 7
        assert answer.meta["spec_verify_ct"] == 2
        first = data.index(b"\n\n") + 2
        assert answer.first == (1.0 if cut >= first else 2.0), cut
    assert answer.tokens_in(0.0, 5.0) == 7


def test_an_error_in_the_stream_is_told_and_short_answers_are_not_good() -> None:
    answer = Answer(7, exact=True)
    answer.feed(stream_of([1, 3])[: -len(b"data: [DONE]\n\n")], 1.0)
    answer.feed(b'data: {"error": {"message": "out of memory"}}\n\n', 2.0)
    answer.finish(2.0)
    assert "out of memory" in answer.problem
    short = Answer(7, exact=True)
    short.feed(stream_of([1, 3]), 1.0)
    short.finish(2.0)
    assert short.problem == "3 tokens came of 7 asked"


def test_a_server_that_counts_only_at_the_end_has_its_tokens_spread_over_its_chunks() -> None:
    answer = Answer(6, exact=True)
    answer.feed(b'data: {"choices": [{"delta": {"role": "assistant", "content": ""}}]}\n\n', 0.5)
    for at in (1.0, 2.0, 3.0):
        answer.feed(b'data: {"choices": [{"delta": {"content": "x"}}], "usage": null}\n\n', at)
    answer.feed(b'data: {"choices": [], "usage": {"completion_tokens": 6, "prompt_tokens": 4}}\n\n', 3.1)
    answer.finish(3.2)
    assert answer.first == 1.0
    assert list(answer.tokens) == [2, 4, 6]
    assert answer.problem == ""


def made(sent: float, times: list[float], counts: list[int]) -> Answer:
    answer = Answer(counts[-1], exact=True)
    answer.sent = sent
    for at, count in zip(times, counts, strict=True):
        answer.feed(b'data: {"meta_info": {"completion_tokens": %d}}\n\n' % count, at)
    answer.finish(times[-1])
    return answer


def test_figures_count_tokens_and_not_chunks() -> None:
    """Four tokens in one chunk after 0.4 s are four gaps of 0.1 s."""
    answer = made(0.0, [1.0, 1.4, 1.5], [1, 5, 6])
    figures = compute([answer], [answer], Span(1.0, 1.5))
    assert figures["itl"]["avg"] == pytest.approx(0.1)
    assert figures["itl"]["p50"] == pytest.approx(0.1)
    assert figures["tpot"]["avg"] == pytest.approx(0.1)
    assert figures["ttft"]["avg"] == pytest.approx(1.0)
    assert figures["throughput"] == pytest.approx(5 / 0.5), "the first token came before the window"
    assert weighted_spread([(1.0, 1), (2.0, 98), (9.0, 1)])["p99"] == 2.0


def test_arms_are_measured_there_and_back_again() -> None:
    arms = [{"name": "a", "threshold": 0}, {"name": "b", "threshold": 9}]
    spec = parse_sweep({"url": "u", "levels": [1, 2], "arms": arms, "repeats": 3}, ("p",))
    order = [(run.level, run.arm.name) for run in spec.runs]
    assert order == [(1, n) for n in "abbaab"] + [(2, n) for n in "abbaab"]


class Sweep:
    """`child-sweep` as the agent starts it."""

    def __init__(self, folder: Path, port: int, **spec: Any) -> None:
        path = folder / "agent.zip"
        path.write_bytes(agent_zip())
        self.child = subprocess.Popen(
            [sys.executable, "-B", str(path), "child-sweep"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        whole = {"url": f"http://127.0.0.1:{port}", "release": "0.5.18", "max_tokens": 16, **spec}
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps(whole))
        self.child.stdin.close()

    def read(self, until: str) -> list[Json]:
        """Events up to the first of a kind."""
        events: list[Json] = []
        assert self.child.stdout is not None
        for line in self.child.stdout:
            events.append(json.loads(line))
            if events[-1]["event"] == until:
                break
        return events

    def end(self) -> Json:
        value: Json = self.read("result")[-1]["value"]
        assert self.child.stdout is not None
        self.child.stdout.close()
        self.child.wait()
        return value


@pytest.mark.parametrize("api", ["generate", "completions", "chat"])
def test_every_token_is_counted_by_every_interface(tmp_path: Path, api: str) -> None:
    port = free_port()
    with serve(port, tmp_path / "truth", ttft_s=0.03, itl_s=0.004, tokens_per_chunk=2) as truth:
        result = Sweep(tmp_path, port, levels=[4], requests=8, api=api, prompt_tokens=[4, 9]).end()
        rows = read_truth(truth)
    assert result["ended"] == "finished"
    level = result["levels"][0]
    assert (level["ok"], level["requests"]) == (8, 8)
    sent = [row for row in rows if row["tokens"] == 16][-8:]
    start = min(row["came"] for row in sent)
    assert level["wall_s"] >= max(row["wrote"][-1][0] for row in sent) - start - 0.002
    assert level["ttft"]["avg"] >= 0.03
    assert level["prompt_tokens"] == 8


def test_a_request_counts_from_when_it_was_written_and_not_while_others_were(tmp_path: Path) -> None:
    """Or many that start together measure this client's own queue as the server's TTFT."""
    made: dict[str, float] = {}

    class Slow(Client):
        def _body(self, text: str, tokens: int) -> Json:
            time.sleep(0.005)
            made[text] = time.monotonic()
            return super()._body(text, tokens)

    async def go(port: int) -> list[Answer]:
        spec = parse_sweep({"url": f"http://127.0.0.1:{port}", "release": "0.5.18", "levels": [1]}, ("p",))
        async with Slow(spec) as client:
            return await asyncio.gather(*(client.send(str(number), 2) for number in range(20)))

    port = free_port()
    with serve(port, tmp_path / "truth", ttft_s=0.02, itl_s=0.01) as truth:
        answers = asyncio.run(go(port))
        came = [row["came"] for row in read_truth(truth)]
    assert all(answer.sent >= made[str(number)] for number, answer in enumerate(answers))
    assert max(answer.sent for answer in answers) <= max(came), "the same clock on both sides"


def speak_at_once(server: socket.socket, count: int, all_there: threading.Event) -> None:
    """Once all requests are here: a whole answer to each."""
    connections = [server.accept()[0] for _ in range(count)]
    for connection in connections:
        while b"\r\n\r\n" not in connection.recv(65536, socket.MSG_PEEK):
            pass
    for connection in connections:
        connection.recv(65536)
        connection.sendall(HEAD + b"%x\r\n%s\r\n0\r\n\r\n" % (len(stream_of([1])), stream_of([1])))
    all_there.set()
    for connection in connections:
        connection.close()


def test_tokens_count_from_when_they_came_and_not_from_their_turn() -> None:
    """Of many streams that speak at once the last one waits here for all others to be heeded."""
    all_there, arrivals, count = threading.Event(), Arrivals(), 8

    class Slow(Answer):
        def feed(self, data: bytes, now: float) -> None:
            all_there.wait(30)
            time.sleep(0.002)
            super().feed(data, now)

    async def go(port: int) -> list[Answer]:
        spec = parse_sweep({"url": f"http://127.0.0.1:{port}", "release": "0.5.18", "levels": [1]}, ("p",))
        answers: list[Answer] = [Slow(1, exact=True) for _ in range(count)]
        async with Client(spec, came=arrivals.came) as client:
            await asyncio.gather(*(client.send("x", 1, started=answer) for answer in answers))
        return answers

    with socket.create_server(("127.0.0.1", 0), backlog=count) as server:
        speaker = threading.Thread(target=speak_at_once, args=(server, count, all_there))
        speaker.start()
        answers = run(go(server.getsockname()[1]), arrivals)
        speaker.join()
    assert [answer.problem for answer in answers] == [""] * count
    assert len({answer.first for answer in answers}) <= 2, "all that had come meanwhile came at one time"
    assert all(answer.sent < (answer.first or 0.0) <= (answer.ended or 0.0) for answer in answers)


def test_a_connection_that_the_server_closes_as_it_is_used_again_costs_no_request() -> None:
    """SGLang's server ends a connection that was idle for five seconds, whatever is on its way."""
    asked: list[int] = []

    async def serve_one_each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number in range(2):
            with contextlib.suppress(asyncio.IncompleteReadError):
                await reader.readuntil(b"\r\n\r\n")
            asked.append(number)
            if number == 0:
                writer.write(HEAD + b"%x\r\n%s\r\n0\r\n\r\n" % (len(stream_of([1, 2])), stream_of([1, 2])))
        writer.close()

    async def go() -> list[str]:
        server = await asyncio.start_server(serve_one_each, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        spec = parse_sweep({"url": f"http://127.0.0.1:{port}", "release": "0.5.18", "levels": [1]}, ("p",))
        async with server, Client(spec) as client:
            return [(await client.send("x", 2)).problem for _ in range(3)]

    assert asyncio.run(go()) == ["", "", ""]
    assert asked[:5] == [0, 1, 0, 1, 0], "each on a new connection, once the old one broke"


def test_latencies_are_of_a_load_that_goes_on_until_they_are_known(tmp_path: Path) -> None:
    """Requests that outlive the window would run faster and faster in a server that empties."""
    port = free_port()
    with serve(port, tmp_path / "truth", ttft_s=0.03, itl_s=0.01) as truth:
        result = Sweep(tmp_path, port, levels=[6], window_s=0.5, max_tokens=80).end()
        rows = [row for row in read_truth(truth) if row["wrote"]]
    (level,) = result["levels"]
    assert level["ok"] == level["requests"]
    closed = level["window"][1]
    counted = [row for row in rows if row["tokens"] == 80 and row["came"] < closed]
    known = max(row["wrote"][-1][0] for row in counted)
    assert known > closed + 0.3, "a request takes longer than the window"
    middle = (closed + known) / 2
    assert sum(row["came"] < middle < row["wrote"][-1][0] for row in rows) >= 5
    assert max(row["wrote"][-1][0] for row in rows) < known + 0.5, "and no longer"
    assert level["requests"] == sum(row["came"] < closed for row in rows if row["tokens"] != 32)


def test_250_streams_at_once_and_a_rate(tmp_path: Path) -> None:
    port = free_port()
    with serve(port, tmp_path / "truth", ttft_s=0.2, itl_s=0.1) as truth:
        load = {"levels": [250], "rates": [40], "window_s": 0.5, "most_at_once": 100, "max_tokens": 8}
        result = Sweep(tmp_path, port, **load).end()
        rows = read_truth(truth)
    assert result["ended"] == "finished"
    many, rate = result["levels"]
    assert many["ok"] == many["requests"] >= 250
    assert many["client"]["rss_mb"] < 500
    assert many["in_flight"] > 200
    assert rate["ok"] == rate["requests"] >= 10
    assert rate["line"].startswith("R=40/s |")
    assert rate["rate_sent"] > 10
    assert rate["rate_served"] == pytest.approx(rate["throughput"] / 8)
    assert sum(row["came"] > rate["window"][1] for row in rows) > 10, "others came until those were answered"


def test_a_server_that_dies_mid_level_leaves_the_finished_levels_and_a_sentence(tmp_path: Path) -> None:
    port = free_port()
    with serve(port, tmp_path / "truth", ttft_s=0.02, itl_s=0.01):
        sweep = Sweep(tmp_path, port, levels=[1, 2, 3], requests=2)
        assert [event["event"] for event in sweep.read("level")] == ["note", "level"]
    result = sweep.end()
    assert 1 <= len(result["levels"]) < 3 or "errors" in str(result["levels"][-1]["taints"])
    assert result["levels"][0]["C"] == 1
    assert result["ended"].startswith("C=")
    assert "Traceback" not in result["ended"]


def test_a_sweep_that_is_told_to_end_keeps_its_levels_and_puts_the_threshold_back(tmp_path: Path) -> None:
    port = free_port()
    arms = [{"name": "on", "threshold": 99}, {"name": "off", "threshold": 0}]
    gate = {"gate": "batch-gate", "release": "0.5.12.post1"}
    with serve(port, tmp_path / "truth", ttft_s=0.02, itl_s=0.01, cross=8):
        sweep = Sweep(tmp_path, port, levels=[1, 2], requests=2, repeats=50, arms=arms, **gate)
        seen = sweep.read("level") + sweep.read("level")
        assert {"event": "threshold", "was": 8} in seen
        sweep.child.send_signal(signal.SIGTERM)
        result = sweep.end()
        assert threshold_of(port) == 8
    assert result["ended"] == "interrupted"
    by_arm = {level["arm"]: level for level in result["levels"]}
    assert set(by_arm) == {"on", "off"}
    assert by_arm["on"]["gate"] == {"open": 1.0, "closed": 0.0}
    assert by_arm["off"]["gate"]["closed"] > 0, "idle it says open, under load closed"


def threshold_of(port: int) -> int:
    import urllib.request

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info") as page:
        value = json.loads(page.read())["internal_states"][0]["speculative_gate"]["threshold"]
    return int(value)
