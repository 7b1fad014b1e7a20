"""The lab is real SGLang with real speculation, and its pair notices stale draft KV."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import requests

from specops.lab import processes, server, ssh
from specops.lab.lab import LabState
from tests.pristine import changed_files

pytestmark = pytest.mark.lab

SPECULATION = "--speculative-"
STEP_TOKENS = 4
"""The most that one verification can accept: three drafts and the target's own."""
WORDS = ("the", "license", "may", "import", "class", "return", "self", "you", "copy", "use", "of", "work")


def prompt(seed: int, words: int = 20) -> str:
    draw = random.Random(seed)
    return " ".join(draw.choice(WORDS) for _ in range(words))


@contextmanager
def another_server(lab: LabState, folder: Path, argv: list[str], env: Mapping[str, str]) -> Iterator[int]:
    """A second server of the same install, with a cookie of its own; its port, once it answers."""
    folder.mkdir()
    port = processes.free_port()
    argv = [str(port) if before == "--port" else word for before, word in pairwise(["", *argv])]
    log = folder / "server.log"
    process = processes.start_detached(
        argv, {**server.server_env(folder, Path(lab.python)), **env}, log, folder
    )
    try:
        server.await_token(port, process, log)
        yield port
    finally:
        assert processes.stop_carrying(folder) == []


def lab_argv(lab: LabState) -> list[str]:
    return server.server_argv(Path(lab.python), Path(lab.model), Path(lab.draft), lab.port)


def without_speculation(argv: list[str]) -> list[str]:
    return [
        word
        for before, word in pairwise(["", *argv])
        if not word.startswith(SPECULATION) and not before.startswith(SPECULATION)
    ]


def test_release_and_files_are_those_of_the_wheel(session_lab: LabState) -> None:
    info = requests.get(f"http://127.0.0.1:{session_lab.port}/get_server_info", timeout=30).json()
    assert info["version"] == session_lab.release == "0.5.18"
    assert info["speculative_algorithm"] == "EAGLE3"
    assert ssh.banner(session_lab.ssh_port).startswith("SSH-2.0-OpenSSH")
    assert changed_files(Path(session_lab.package)) == []


def test_speculation_says_what_plain_decoding_says(session_lab: LabState, tmp_path: Path) -> None:
    texts = [prompt(seed, words) for seed, words in ((1, 3), (2, 20), (3, 60), (4, 200))] + ["Grüße, 你好 🙂"]
    argv = without_speculation(lab_argv(session_lab))
    with another_server(session_lab, tmp_path / "plain", argv, {}) as port:
        plain = asyncio.run(generate_together(port, texts))
    speculated = asyncio.run(generate_together(session_lab.port, texts))
    alone = [asyncio.run(generate_together(session_lab.port, [text]))[0] for text in texts]
    assert [each["output_ids"] for each in speculated] == [each["output_ids"] for each in plain]
    assert [each["output_ids"] for each in alone] == [each["output_ids"] for each in plain]
    assert all(each["meta_info"]["spec_accept_length"] > 2 for each in speculated)
    assert all("spec_verify_ct" not in each["meta_info"] for each in plain)


async def generate_together(port: int, texts: list[str]) -> list[dict[str, Any]]:
    async with aiohttp.ClientSession() as session:

        async def one(text: str) -> dict[str, Any]:
            async with session.post(f"http://127.0.0.1:{port}/generate", json=body(text, 150)) as reply:
                answer: dict[str, Any] = await reply.json()
                return answer

        return list(await asyncio.gather(*map(one, texts)))


def body(text: str, tokens: int, *, stream: bool = False) -> dict[str, object]:
    sampling = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
    return {"text": text, "stream": stream, "sampling_params": sampling}


async def follow(session: aiohttp.ClientSession, port: int, text: str, tokens: int, seen: list[int]) -> None:
    """Append the tokens so far with every chunk, which is one verification."""
    request = body(text, tokens, stream=True)
    async with session.post(f"http://127.0.0.1:{port}/generate", json=request) as reply:
        async for line in reply.content:
            if line.startswith(b"data: {"):
                seen.append(json.loads(line[6:])["meta_info"]["completion_tokens"])


def tokens_per_step(seen: list[int], first: int, last: int) -> float:
    """Over the chunks between two positions. Chunks merged on a busy machine count as the steps they need."""
    steps = tokens = 0
    for before, after in pairwise([0, *seen]):
        if first < after <= last:
            tokens += after - before
            steps += -(-(after - before) // STEP_TOKENS)
    return tokens / steps


async def cross_the_threshold(port: int) -> float:
    """Acceptance after nine others closed the gate and went, over that of the same request alone."""
    timeout = aiohttp.ClientTimeout(total=80)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        text, crossed, alone = prompt(11), list[int](), list[int]()
        victim = asyncio.create_task(follow(session, port, text, 700, crossed))
        while not crossed or crossed[-1] < 120:
            await asyncio.sleep(0.005)
        await asyncio.gather(*(follow(session, port, prompt(20 + each), 110, []) for each in range(9)))
        back = crossed[-1]
        assert not victim.done()
        await victim
        await follow(session, port, text, 700, alone)
    window = (back + STEP_TOKENS, back + 50)
    return tokens_per_step(crossed, *window) / tokens_per_step(alone, *window)


@pytest.mark.parametrize(("skip_draft_extend", "low", "high"), [("0", 0.9, 1.2), ("1", 0.0, 0.8)])
def test_pair_notices_stale_draft_kv(
    session_lab: LabState, tmp_path: Path, skip_draft_extend: str, low: float, high: float
) -> None:
    gate = tmp_path / "gate.json"
    gate.write_text(json.dumps({"1": {"candidate_steps": [3]}, "6": {"candidate_steps": [0]}}))
    argv = [*lab_argv(session_lab), "--speculative-adaptive", "--speculative-adaptive-config", str(gate)]
    env = {"SGLANG_SPEC_SKIP_ZERO_STEP_DRAFT_EXTEND": skip_draft_extend}
    with another_server(session_lab, tmp_path / "gated", argv, env) as port:
        ratio = asyncio.run(cross_the_threshold(port))
    assert low < ratio < high, ratio
