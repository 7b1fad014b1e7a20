"""What a smoke test of a running server is told: from its facts where there are any, else from arguments."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from specops.config.overrides import Override
from specops.config.playbook import Playbook, load_playbook
from specops.config.prompts import load_prompts
from specops.connect.base import OnEvent
from specops.connect.child import run_child
from specops.engine.place import Place
from specops.errors import HostUnreachable, Refused, UsageError
from specops.facts.host import HostFacts
from specops.facts.server import Server
from specops.steps.smoke import build_smoke

Json = Any
KEY_VARIABLE = "SPECOPS_API_KEY"
"""Where the load finds a key that came from a file."""


def describe_running(
    facts: HostFacts,
    place: Place,
    playbook: Playbook,
    *,
    threshold: str | None,
    shared: bool,
    prompts: str | None,
) -> dict[str, Json]:
    """SmokeSpec of the server that runs on the host. Raises Refused where none does."""
    server, current = facts.server, facts.state.current
    if server is None:
        raise Refused(
            f"{place.host}: no SGLang server on port {place.port}",
            host_state="nothing was changed",
            next_command=f"specops deploy --host {place.host}",
        )
    ours = current is not None and server.cookie in current.cookies
    summary = current.summary if current is not None and ours else {}
    gate = str(summary.get("gate") or _gate_of(server, playbook))
    spec = build_smoke(
        playbook,
        port=place.port,
        gate=gate,
        release=facts.install.version if facts.install else None,
        max_running=_number(server.reported.get("max_running_requests")),
        graphs=None,
        log=_log_of(facts) if ours else None,
        shared=shared,
        prompts=read_texts(prompts or playbook.smoke.prompts),
    )
    if threshold is None and summary.get("threshold"):
        spec["threshold"] = summary["threshold"]
    return {**spec, "python": place.python, "cookie": server.cookie, "pid": server.pid}


def describe_url(
    url: str, playbook: Playbook, *, shared: bool, prompts: str | None, api_key_env: str | None
) -> dict[str, Json]:
    """SmokeSpec of a server that is only known by its URL; what needs the host will be inconclusive."""
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise UsageError(f"--url {url}: an address such as http://127.0.0.1:30000")
    spec = build_smoke(
        playbook,
        port=0,
        url=url.rstrip("/"),
        gate=playbook.gate.kind,
        release=None,
        max_running=None,
        graphs=None,
        log=None,
        shared=shared,
        prompts=read_texts(prompts or playbook.smoke.prompts),
    )
    return {**spec, "api_key_env": api_key_env, "ask_server": True}


def smoke_url(
    url: str,
    playbook: str | None,
    overrides: Sequence[Override],
    *,
    key: tuple[str | None, dict[str, str]],
    shared: bool,
    prompts: str | None,
    on_event: OnEvent,
) -> Json:
    """The result, from a load that runs here. Raises HostUnreachable where the server cannot be asked."""
    book = load_playbook(playbook or "eagle3-gated", overrides, {})
    spec = describe_url(url, book, shared=shared, prompts=prompts, api_key_env=key[0])
    result = run_child("child-smoke", spec, on_event, key[1])
    if result.get("unanswered"):
        raise HostUnreachable(
            str(result["summary"]),
            host_state="nothing was changed",
            next_command=f"curl {url}/get_server_info shows what is there; with a key: --api-key-file FILE",
        )
    return result


def read_api_key(env: str | None, file: str | None) -> tuple[str | None, dict[str, str]]:
    """(variable that holds the key, what to set for the load alone). Raises UsageError without one."""
    if env and file:
        raise UsageError("--api-key-env and --api-key-file exclude each other")
    if env:
        if not os.environ.get(env):
            raise UsageError(f"--api-key-env {env}: the variable is not set, or empty")
        return env, {}
    if not file:
        return None, {}
    try:
        key = Path(file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--api-key-file {file}: {error}",
            host_state="nothing was asked of the server",
            next_command="specops smoke --api-key-file FILE (the key on its one line), or --api-key-env NAME",
        ) from error
    if not key or "\n" in key:
        raise UsageError(f"--api-key-file {file}: one line, the key, is expected")
    return KEY_VARIABLE, {KEY_VARIABLE: key}


def read_texts(path: str | None) -> list[str] | None:
    return list(load_prompts(Path(path).expanduser())) if path else None


def _gate_of(server: Server, playbook: Playbook) -> str:
    """Of a server that specops did not start: what it says of itself, else what is asked for."""
    if server.reported.get("speculative_adaptive"):
        return "native"
    if server.reported.get("speculative_disable_batch_threshold") is not None:
        return "batch-gate"
    return "none" if playbook.gate.kind == "auto" else playbook.gate.kind


def _log_of(facts: HostFacts) -> str | None:
    """The log of a server that a deploy started, or started again while it took itself back."""
    state, cookie = facts.state, facts.server.cookie if facts.server else None
    if not cookie:
        return None
    deploy = cookie.removesuffix("-old")
    name = "server.log" if deploy == cookie else "old-server.log"
    return f"{state.dir}/instances/{state.key}/deploys/{deploy}/{name}"


def _number(value: Json) -> int | None:
    return value if isinstance(value, int) else None
