"""Plan of a sweep: what the load is told, and what is kept beside the figures."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specops.config.playbook import Playbook
from specops.errors import UsageError
from specops.facts.host import HostFacts

Json = Any
MOST_AT_ONCE = 256
"""Of a load by rate."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """What is measured at each visit to a server."""

    levels: tuple[int, ...]
    rates: tuple[float, ...]
    repeats: int
    window_s: float | None


def parse_measure(
    playbook: Playbook,
    *,
    levels: Sequence[int] | None,
    rates: str | None,
    repeats: int | None,
    window_s: float | None,
) -> Measure:
    """From arguments over the playbook. Rates alone leave the levels out. Raises UsageError."""
    wanted = parse_rates(rates)
    return Measure(
        levels=tuple(levels or (() if wanted else playbook.sweep.levels)),
        rates=wanted,
        repeats=repeats or playbook.sweep.repeats,
        window_s=window_s or playbook.sweep.window_s,
    )


def parse_rates(text: str | None) -> tuple[float, ...]:
    """`0.5,2,8`. Raises UsageError."""
    if text is None:
        return ()
    try:
        rates = tuple(float(word) for word in text.split(","))
    except ValueError:
        rates = (0.0,)
    if not all(0 < rate < 10000 for rate in rates):
        raise UsageError(f"--rates {text}: write requests a second, such as 0.5,2,8")
    return rates


def build_load(
    playbook: Playbook,
    measure: Measure,
    *,
    arms: Sequence[Mapping[str, Json]],
    prompts: Sequence[str] | None,
    max_running: int | None,
    first_repeat: int = 1,
) -> dict[str, Json]:
    """The child's keys beside the smoke test's specification (ARCHITECTURE, The sweep's child)."""
    sweep = playbook.sweep
    return {
        "levels": list(measure.levels),
        "rates": list(measure.rates),
        "most_at_once": max_running or MOST_AT_ONCE,
        "arms": [dict(arm) for arm in arms],
        "repeats": measure.repeats,
        "first_repeat": first_repeat,
        "requests": sweep.requests,
        "window_s": measure.window_s,
        "max_tokens": sweep.max_tokens,
        "api": sweep.api,
        "ignore_eos": sweep.ignore_eos,
        "prompts": list(prompts) if prompts else None,
        "prompt_tokens": list(sweep.prompt_tokens) if sweep.prompt_tokens else None,
        "max_running": max_running,
    }


SHOWN = (
    "model_path", "served_model_name", "tp_size", "dtype", "quantization", "max_running_requests",
    "max_total_tokens", "mem_fraction_static", "context_length", "chunked_prefill_size", "attention_backend",
    "cuda_graph_max_bs", "disable_cuda_graph", "disable_radix_cache", "disable_overlap_schedule",
    "schedule_policy", "schedule_conservativeness", "decode_log_interval", "kv_cache_dtype", "page_size",
    "speculative_algorithm", "speculative_draft_model_path", "speculative_num_steps",
    "speculative_eagle_topk", "speculative_num_draft_tokens", "speculative_adaptive",
)  # fmt: skip
"""Of what a server reports of itself: what speed depends on."""


def describe_about(
    facts: HostFacts, playbook: Playbook, *, host: str, load: Mapping[str, Json], command: str, version: str
) -> dict[str, Json]:
    """What a reader needs to judge the figures, and to measure them again."""
    server, current, platform = facts.server, facts.state.current, facts.platform
    reported = server.reported if server else {}
    prompts = load.get("prompts")
    return {
        "host": host,
        "release": facts.install.version if facts.install else None,
        "playbook": playbook.name,
        "patches": _patches(facts),
        "deploy": current.id if current else None,
        "server": {name: reported[name] for name in SHOWN if reported.get(name) is not None},
        "load": {
            "api": load.get("api"),
            "prompts": _prompt_words(load),
            "prompts_sha256": _digest(prompts) if prompts else None,
            "max_tokens": load.get("max_tokens"),
            "window": _window_words(load),
            "ignore_eos": load.get("ignore_eos"),
        },
        "machine": {
            "hostname": platform.hostname,
            "cores": platform.cores,
            "memory_gib": round(platform.mem_total / 2**30, 1),
            "gpus": [gpu.name for gpu in facts.gpus] if facts.gpus else None,
        },
        "boot_id": platform.boot_id,
        "versions": {"specops": version, "sglang": facts.install.version if facts.install else None,
                     "torch": facts.install.torch if facts.install else None},
        "command": command,
    }  # fmt: skip


def describe_arm(
    arm: Mapping[str, Json], about: Mapping[str, Json], first: Mapping[str, Json], how: str
) -> dict[str, Json]:
    """An arm beside the first one measured: of its server only what that one's arguments were not."""
    told = {**arm, "how": how, "deploy": about.get("deploy"), "max_running": about.get("max_running")}
    here, there = about.get("server") or {}, first.get("server") or {}
    other = {name: here.get(name) for name in {**there, **here} if here.get(name) != there.get(name)}
    return {**told, "server": other} if other else told


def _window_words(load: Mapping[str, Json]) -> str:
    return f"{load['window_s']:g} s" if load.get("window_s") else f"{load.get('requests')} requests at least"


def _patches(facts: HostFacts) -> dict[str, Json]:
    current = facts.state.current
    if current is None:
        return {}
    files = {file.path.rpartition("/")[2]: (file.after or "removed")[:12] for file in current.files}
    return {"ids": list(current.summary.get("patches") or ()), "files": files}


def _prompt_words(load: Mapping[str, Json]) -> str:
    span = load.get("prompt_tokens")
    if span:
        return f"random words, {span[0]} to {span[1]} tokens"
    return f"{len(load['prompts'])} of a file" if load.get("prompts") else "built in: coding and agentic"


def _digest(prompts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(prompts).encode()).hexdigest()[:16]
