"""Headless Chromium over its own debugging protocol: opens a page, evaluates in it, takes its picture."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

Json = Any
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--remote-debugging-port=0",
)  # fmt: skip
START_S = 60.0


def find_chromium() -> str:
    found = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))),
        "",
    )
    if not found:
        pytest.fail("Chromium is not installed: apt-get install chromium")
    return found


class Tab:
    """One page. What it says on its console, and every error in it, is in `complaints`."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._events: list[str] = []

    async def ask(self, method: str, **params: Json) -> Json:
        self._number += 1
        number = self._number
        await self._socket.send_json({"id": number, "method": method, "params": params})
        while True:
            message = json.loads((await self._socket.receive(timeout=60)).data)
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
            self._take(message)

    def _take(self, message: Json) -> None:
        method, params = message.get("method"), message.get("params") or {}
        self._events.append(str(method))
        if method in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
            self.complaints.append(json.dumps(params))
        if method == "Network.requestWillBeSent":
            self.requests.append(str(params["request"]["url"]))

    async def open(self, url: str) -> None:
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.ask(f"{domain}.enable")
        await self.ask("Page.navigate", url=url)
        while "Page.loadEventFired" not in self._events:
            self._take(json.loads((await self._socket.receive(timeout=60)).data))

    async def evaluate(self, expression: str) -> Json:
        answer = await self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def resize(self, width: int, height: int, *, dark: bool) -> None:
        await self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.ask("Emulation.setEmulatedMedia", features=[scheme])

    async def picture(self, path: Path) -> None:
        answer = await self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))


def browse(url: str, folder: Path, visit: Callable[[Tab], Awaitable[None]]) -> Tab:
    """Open `url` in a browser of its own, and let `visit` look at it."""
    profile = folder / "profile"
    process = subprocess.Popen(
        [find_chromium(), *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        port = _await_port(profile / "DevToolsActivePort", process)
        return asyncio.run(_visit(port, url, visit))
    finally:
        with_group(process)


def _await_port(file: Path, process: subprocess.Popen[bytes]) -> int:
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        if file.exists() and (lines := file.read_text().splitlines()):
            return int(lines[0])
        time.sleep(0.05)
    raise AssertionError("Chromium did not start")


async def _visit(port: int, url: str, visit: Callable[[Tab], Awaitable[None]]) -> Tab:
    async with aiohttp.ClientSession() as session:
        async with session.put(f"http://127.0.0.1:{port}/json/new?about:blank") as answer:
            target = (await answer.json())["webSocketDebuggerUrl"]
        async with session.ws_connect(target, max_msg_size=0) as socket:
            tab = Tab(socket)
            await tab.open(url)
            await visit(tab)
            return tab


def with_group(process: subprocess.Popen[bytes]) -> None:
    """End the browser and what it started: they are one session."""
    for number in (15, 9):
        try:
            os.killpg(process.pid, number)
            process.wait(10)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    process.wait()
