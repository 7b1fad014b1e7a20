"""The HTTP interface of a running SGLang server: its health, one token, what it says of itself."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import procs, redact
from .compared import compared_names
from .members import find_option

Json = Any
TOKEN_S = 60.0
"""For one token: a first request may compile kernels."""
LIST_CAP = 256


@dataclass(frozen=True)
class Api:
    address: str
    port: int
    key: str | None = None
    tls: bool = False

    def ask(self, path: str, body: Json = None, *, timeout_s: float, method: str = "") -> tuple[int, Json]:
        """(status, parsed JSON or None); status 0 where there was no answer in time."""
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        data = None if body is None else json.dumps(body)
        connection = self._connect(timeout_s)
        try:
            connection.request(method or ("GET" if data is None else "POST"), path, data, headers)
            reply = connection.getresponse()
            raw = reply.read(16 * 1024 * 1024)
        except (OSError, http.client.HTTPException):
            return 0, None
        finally:
            connection.close()
        try:
            return reply.status, json.loads(raw)
        except ValueError:
            return reply.status, None

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        if not self.tls:
            return http.client.HTTPConnection(self.address, self.port, timeout=timeout_s)
        # we ask a process on this machine whose identity /proc has shown; its certificate is not for loopback
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection(self.address, self.port, timeout=timeout_s, context=context)

    def is_healthy(self, *, timeout_s: float = 3.0) -> bool:
        """503 is asked again until the time is over: SGLang answers so until its own warm-up is done."""
        until = time.monotonic() + timeout_s
        while (left := until - time.monotonic()) > 0:
            status = self.ask("/health", timeout_s=max(left, 0.1))[0]
            if status != 503:
                return status == 200
            time.sleep(0.3)
        return False

    def get_token(self, *, timeout_s: float = TOKEN_S) -> str:
        """Empty when one real token came back, else why not."""
        body = {"text": "1", "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
        status, answer = self.ask("/generate", body, timeout_s=timeout_s)
        if status != 200 or not isinstance(answer, dict):
            return f"/generate answered {status or 'nothing'}"
        made = (answer.get("meta_info") or {}).get("completion_tokens")
        return "" if made is None or int(made) >= 1 else "/generate made no token"

    def get_info(self, *, timeout_s: float = 3.0) -> dict[str, Json]:
        """The server's own report, reduced to what can be compared and shown; empty without an answer."""
        for path in ("/server_info", "/get_server_info"):
            status, answer = self.ask(path, timeout_s=timeout_s)
            if status == 200 and isinstance(answer, dict):
                return reduce_info(answer)
            if status == 0:
                break
        return {}


def api_of(port: int, argv: Sequence[str] = ()) -> Api:
    """How to reach what listens on `port` from this machine; `argv` (the launcher's) tells key and TLS."""
    address = "127.0.0.1"
    found = [listener.address for listener in procs.read_listeners(port)]
    if found and "0.0.0.0" not in found and "127.0.0.1" not in found:  # noqa: S104
        address = "::1" if "::" in found else found[0]
        if "::" in found and not os.path.exists("/proc/net/if_inet6"):
            address = "127.0.0.1"
    return Api(
        address=address,
        port=port,
        key=find_option(argv, "--api-key"),
        tls=find_option(argv, "--ssl-certfile") is not None,
    )


def reduce_info(info: Mapping[str, Json]) -> dict[str, Json]:
    """Scalars and short lists; nothing that looks like a secret (SGLang reports its own API key)."""
    kept: dict[str, Json] = {}
    compared = compared_names()  # `speculative_num_draft_tokens` only sounds like a secret
    for name, value in info.items():
        if value is None or (redact.looks_secret(name) and name not in compared):
            continue
        short_list = isinstance(value, list) and len(value) <= LIST_CAP and all(map(_is_scalar, value))
        if _is_scalar(value) or short_list:
            kept[name] = value
    states = info.get("internal_states")
    inner = states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}
    kept["internal"] = {
        name: value
        for name, value in inner.items()
        if name.startswith(("speculative_", "effective_", "avg_spec", "max_running", "last_gen"))
        and (_is_scalar(value) or isinstance(value, list))
        and not redact.looks_secret(name)
    }
    gate = inner.get("speculative_gate")
    if isinstance(gate, dict):  # of the batch-gate patch; its ring and its ranks are long
        kept["internal"]["speculative_gate"] = {k: v for k, v in gate.items() if _is_scalar(v)}
    return kept


def _is_scalar(value: Json) -> bool:
    return isinstance(value, (str, int, float, bool)) and not (isinstance(value, str) and len(value) > 2000)
