"""What a smoke test of a running server is told: from its facts where there are any, else from arguments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specops.config.playbook import Playbook
from specops.config.prompts import load_prompts
from specops.engine.place import Place
from specops.errors import Refused
from specops.facts.host import HostFacts
from specops.facts.server import Server
from specops.steps.smoke import build_smoke

Json = Any


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
    return {**spec, "python": place.python, "cookie": server.cookie}


def describe_url(
    url: str, playbook: Playbook, *, shared: bool, prompts: str | None, api_key_env: str | None
) -> dict[str, Json]:
    """SmokeSpec of a server that is only known by its URL; what needs the host will be inconclusive."""
    gate = playbook.gate.kind if playbook.gate.kind != "auto" else "native"
    spec = build_smoke(
        playbook,
        port=0,
        url=url.rstrip("/"),
        gate=gate,
        release=None,
        max_running=None,
        graphs=None,
        log=None,
        shared=shared,
        prompts=read_texts(prompts or playbook.smoke.prompts),
    )
    return {**spec, "api_key_env": api_key_env}


def read_texts(path: str | None) -> list[str] | None:
    return list(load_prompts(Path(path).expanduser())) if path else None


def pick_levels(asked: Sequence[int] | None, playbook: Playbook) -> list[int]:
    return list(asked or playbook.sweep.levels)


def _gate_of(server: Server, playbook: Playbook) -> str:
    """Of a server that specops did not start: what it says of itself, else what is asked for."""
    if server.reported.get("speculative_adaptive"):
        return "native"
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
