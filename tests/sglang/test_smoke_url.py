"""`specops smoke --url` on a real gated server that specops did not start: alone, and with others on it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import pytest
import requests

from benchmarks.gated_server import GatedServer, serve
from specops.lab import processes
from specops.lab.lab import LabState
from tests.e2e.command import Ran, specops

pytestmark = pytest.mark.lab

KEY = "a-key-of-the-lab"
CHECKS = ("S0", "S1", "S3")


@contextmanager
def traffic(server: GatedServer) -> Iterator[None]:
    """Somebody else's long requests, one after the other; in once the server's own gauge counts them."""
    done = threading.Event()

    def ask() -> None:
        sampling = {"max_new_tokens": 3000, "temperature": 0, "ignore_eos": True}
        body = {"text": "somebody else", "stream": True, "sampling_params": sampling}
        while not done.is_set():
            with requests.post(
                f"{url_of(server)}/generate", json=body, headers=headers(), stream=True, timeout=60
            ) as answer:
                for _ in answer.iter_lines():
                    if done.is_set():
                        break

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    try:
        until = time.monotonic() + 60
        while running(server) < 1:
            assert time.monotonic() < until, "the server does not count a request that runs"
        yield
    finally:
        done.set()
        asking.join(30)


def running(server: GatedServer) -> float:
    text = requests.get(f"{url_of(server)}/metrics", timeout=10).text
    lines = [line for line in text.splitlines() if line.startswith("sglang:num_running_reqs")]
    return max([float(line.rsplit(" ", 1)[1]) for line in lines], default=0.0)


def url_of(server: GatedServer) -> str:
    return f"http://127.0.0.1:{server.port}"


def headers() -> dict[str, str]:
    return {"Authorization": f"Bearer {KEY}"}


def smoke(server: GatedServer, folder: Path, *words: str, checks: tuple[str, ...] = CHECKS) -> Ran:
    words = ("--set", f"smoke.checks=[{', '.join(checks)}]", "--set", "smoke.budget_s=900", *words)
    data = {"XDG_DATA_HOME": str(folder / "data"), "THE_KEY": KEY}
    asked = ("smoke", "--url", url_of(server), "--json", "--set", "smoke.exact_outputs=true")
    return specops(*asked, *words, env=data, deadline_s=960)


def verdicts(ran: Ran) -> dict[str, str]:
    return {event["id"]: event["verdict"] for event in ran.events("check")}


def test_a_server_that_specops_did_not_start(session_lab: LabState, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(f"{KEY}\n")
    port = processes.free_port()
    with serve(session_lab.release, port, tmp_path / "work", more=("--api-key", KEY)) as server:
        passed = smoke(server, tmp_path, "--api-key-file", str(key))
        assert (passed.code, verdicts(passed)) == (0, dict.fromkeys(CHECKS, "pass")), passed.out[-3000:]
        assert KEY not in passed.out + passed.err
        shown = passed.events("smoke")[0]["smoke"]
        assert json.loads(Path(shown["kept"]["json"]).read_text())["verdict"] == "pass"
        assert ElementTree.parse(shown["kept"]["picture"]).getroot().tag.endswith("svg")  # noqa: S314
        assert smoke(server, tmp_path).code == 12, "without its key it cannot be asked"
        with traffic(server):
            refused = smoke(server, tmp_path, "--api-key-env", "THE_KEY")
            assert (refused.code, verdicts(refused)) == (15, {"S0": "inconclusive"})
            assert "requests that are not ours" in refused.events("check")[0]["summary"]
            shared = smoke(server, tmp_path, "--api-key-env", "THE_KEY", "--shared", checks=("S0", "S1"))
            assert verdicts(shared)["S0"] == "pass"
            assert set(verdicts(shared)) == {"S0", "S1"}, "with --shared it goes on"
