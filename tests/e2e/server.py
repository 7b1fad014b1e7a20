"""Looks at the lab's server from outside, without specops."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import requests


def generate(port: int, *, tokens: int = 32, text: str = "def main():") -> dict[str, Any]:
    answer = requests.post(
        f"http://127.0.0.1:{port}/generate",
        json={
            "text": text,
            "sampling_params": {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True},
        },
        timeout=60,
    )
    answer.raise_for_status()
    body: dict[str, Any] = answer.json()
    return body


def one_token(port: int) -> bool:
    return int(generate(port, tokens=1)["meta_info"]["completion_tokens"]) == 1


def is_speculating(port: int) -> bool:
    meta = generate(port, tokens=64)["meta_info"]
    return 0 < int(meta["spec_verify_ct"]) < 50


def owner_of_port(port: int) -> int | None:
    """The pid that listens on 127.0.0.1:port, or None."""
    wanted = f":{port:04X}"
    inodes = {
        fields[9]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if (fields := line.split())[3] == "0A" and fields[1].endswith(wanted)
    }
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and inodes & _socket_inodes(entry):
            return int(entry.name)
    return None


def _socket_inodes(process: Path) -> set[str]:
    found = set()
    try:
        for fd in (process / "fd").iterdir():
            target = os.readlink(fd)
            if target.startswith("socket:["):
                found.add(target[8:-1])
    except OSError:
        return found
    return found


def can_bind(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
