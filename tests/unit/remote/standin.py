"""A small stand-in for a server, as real processes: `python standin.py sglang.launch_server --port N …`.

It is recognised as SGLang by the word in its command line. Its behaviour is set by the environment.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

READY = "[2026-11-30 05:00:00] The server is fired up and ready to roll!"


HELD: list[mmap.mmap] = []


def option(name: str, default: str = "") -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def worker() -> None:
    """A child that may ignore TERM, leave the session, or write last words and die."""
    if os.environ.get("STANDIN_IGNORE_TERM"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.environ.get("STANDIN_DRAIN_S"):
        signal.signal(signal.SIGTERM, lambda *_: say("a worker was told to end"))
    if late := os.environ.get("STANDIN_LATE_SHM"):
        signal.signal(signal.SIGTERM, lambda *_: HELD.append(map_shared(late)))
    for path in json.loads(os.environ.get("STANDIN_SHM") or "[]"):
        HELD.append(map_shared(path))
    while True:
        time.sleep(600)


def map_shared(path: str) -> mmap.mmap:
    """As a worker's segments and semaphores are: a file of its own, mapped."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(fd, 4096)
    return mmap.mmap(fd, 4096)


class Handler(BaseHTTPRequestHandler):
    def answer(self, value: Any, status: int = 200) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        info = {
            "model_path": option("--model-path", "/m"),
            "max_running_requests": int(option("--max-running-requests", "16")),
            "speculative_algorithm": "EAGLE3",
            "api_key": option("--api-key") or None,
            "version": "0.5.18",
        }
        self.answer(info if self.path == "/server_info" else {})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        refuse = os.environ.get("STANDIN_NO_TOKEN")
        self.answer({"text": "a", "meta_info": {"completion_tokens": 1}}, 500 if refuse else 200)

    def log_message(self, format: str, *args: Any) -> None:
        if os.environ.get("STANDIN_ACCESS"):
            say(f"[2026-11-30 05:00:01] INFO:     127.0.0.1:41234 - {format % args}")


def drain(children: list[subprocess.Popen[bytes]]) -> None:
    """As SGLang's launcher on TERM: its requests go on to their end, then it takes its workers with it."""
    say("draining")
    time.sleep(float(os.environ["STANDIN_DRAIN_S"]))
    say("drained")
    for child in children:
        child.kill()
        child.wait()
    os._exit(0)


def serve() -> None:
    words = [sys.executable, "-S", __file__, "sglang.worker"]
    children = [subprocess.Popen(words, start_new_session=bool(os.environ.get("STANDIN_NEW_SESSION")))]
    if os.environ.get("STANDIN_ESCAPED"):  # its parent is gone; what is left is the session, and the device
        subprocess.run(["/bin/sh", "-c", f"sleep 600 3<{os.environ['STANDIN_ESCAPED']} &"], check=True)
    if os.environ.get("STANDIN_IGNORE_TERM"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.environ.get("STANDIN_DRAIN_S"):
        signal.signal(signal.SIGTERM, lambda *_: drain(children))
    for line in json.loads(os.environ.get("STANDIN_LOG") or "[]"):
        say(line)
    if os.environ.get("STANDIN_EXIT"):
        children[0].kill()
        raise SystemExit(int(os.environ["STANDIN_EXIT"]))
    time.sleep(float(os.environ.get("STANDIN_LOAD_S") or 0))
    server = ThreadingHTTPServer(("127.0.0.1", int(option("--port"))), Handler)
    say(READY)
    server.serve_forever()


if __name__ == "__main__":
    worker() if "sglang.worker" in sys.argv else serve()
