"""Playbook: what should be serving, and how it is proven: every key with its meaning and default."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from specops.config.overrides import Override, apply_overrides
from specops.config.schema import Flag, Text, above, at_least, read_node, setting, within
from specops.config.shipped import find_playbook
from specops.config.source import Source, child, complain, read_source
from specops.config.variables import fill_variables

if TYPE_CHECKING:
    from yaml.nodes import Node

GateWish = Literal["auto", "native", "batch-gate", "none"]
Api = Literal["generate", "completions", "chat"]
CheckId = Literal["S0", "S1", "S2", "S3", "S4", "S5", "S6", "S7"]
Scope = Literal["none", "user", "system"]
Inconclusive = Literal["roll_back", "keep"]

OWN_KEYS = {
    "model-path": "model.path",
    "served-model-name": "model.served_name",
    "speculative-draft-model-path": "draft.path",
    "speculative-num-steps": "draft.num_steps",
    "speculative-eagle-topk": "draft.topk",
    "speculative-num-draft-tokens": "draft.num_draft_tokens",
    "port": "server.port",
    "host": "server.host",
    "tp": "server.tp",
    "tp-size": "server.tp",
    "tensor-parallel-size": "server.tp",
    "mem-fraction-static": "server.mem_fraction_static",
    "max-running-requests": "server.max_running_requests",
    "context-length": "server.context_length",
    "decode-log-interval": "server.decode_log_interval",
    "cuda-graph-bs": "server.cuda_graph_bs",
    "cuda-graph-bs-decode": "server.cuda_graph_bs",
    "speculative-adaptive": "gate.kind",
    "speculative-adaptive-config": "gate.threshold",
}
"""Flags that may not stand in `server.args`, since a key of their own already decides them."""


def flag_problem(args: Mapping[str, Flag]) -> str | None:
    for name in args:
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
            plain = name.lstrip("-").replace("_", "-")
            return f"{name!r} is not a flag's name: without the leading dashes, words joined by '-' ({plain})"
        if name in OWN_KEYS:
            return f"{name!r} has a key of its own: {OWN_KEYS[name]}"
    return None


def path_problem(path: str) -> str | None:
    """Paths on the host are absolute or below the remote user's home; a name without a slash is a hub's."""
    if not path:
        return "must not be empty"
    return "'~user' is not read: only '~/', the remote user's home" if re.match(r"~[^/]", path) else None


def sizes_problem(sizes: Sequence[int]) -> str | None:
    return (
        None if all(size >= 1 for size in sizes) and sizes else "must be batch sizes, whole numbers from 1 on"
    )


def span_problem(span: Sequence[int] | None) -> str | None:
    good = span is None or (len(span) == 2 and 1 <= span[0] <= span[1])
    return None if good else "must be [from, to] in tokens, such as [256, 1024]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    path: str = setting("folder on the host (~ is the remote user's home) or a hub name", check=path_problem)
    served_name: str | None = setting("name that clients ask for", default=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    path: str = setting("the EAGLE-3 draft: folder on the host or a hub name", check=path_problem)
    num_steps: int = setting("draft steps while the gate is open", default=3, check=within(1, 32))
    topk: int = setting("branches; the native gate needs 1", default=1, check=at_least(1))
    num_draft_tokens: int = setting("tokens of one verify; 0: num_steps + 1", default=0, check=at_least(0))


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    port: int | None = setting(
        "for instances whose inventory entry gives no port", default=None, check=within(1, 65535)
    )
    host: str = setting("address that the server binds", default="127.0.0.1")
    tp: int = setting("GPUs that share the model", default=1, check=at_least(1))
    mem_fraction_static: float | None = setting(
        "share of GPU memory; None: SGLang's choice", default=None, check=within(0.01, 0.99)
    )
    max_running_requests: int | None = setting(
        "None: SGLang's choice, raised to what the proof needs", default=None, check=at_least(1)
    )
    context_length: int | None = setting("tokens; None: the model's", default=None, check=at_least(1))
    decode_log_interval: int = setting(
        "steps between two log lines that the smoke test reads", default=10, check=at_least(1)
    )
    cuda_graph_bs: tuple[int, ...] | None = setting(
        "captured batch sizes; T is added. None: the release's own list", default=None, check=sizes_problem
    )
    scope: Scope = setting(
        "user or system: started in a systemd scope, which no logout ends; none: in a session of its own",
        default="none",
    )
    args: Mapping[str, Flag] = setting("any other flag, without dashes", default={}, check=flag_problem)


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    kind: GateWish = setting("auto: native where the release has one, else a patch", default="auto")
    threshold: int = setting(
        "T: speculation is on up to a running batch of T, off above", default=5, check=at_least(1)
    )
    hysteresis_steps: int = setting(
        "steps below T before a patched gate opens again; the native gate has none",
        default=4,
        check=at_least(0),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    set: Mapping[str, Text] = setting("variables of the server", default={})
    unset: tuple[str, ...] = setting("variables taken away from what it starts from", default=())


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    progress_s: float = setting("longest time without a new milestone", default=300.0, check=above(0))
    cap_s: float = setting("longest load in all", default=1800.0, check=above(0))
    warm_s: float = setting(
        "longest time to read the weights into memory while the old server still serves; 0: not at all",
        default=60.0,
        check=at_least(0),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Stop:
    drain_s: float = setting("wait for running requests before TERM", default=10.0, check=at_least(0))
    term_s: float = setting("wait after TERM before KILL", default=30.0, check=at_least(0))


@dataclass(frozen=True, kw_only=True, slots=True)
class Floors:
    open: float = setting("tokens per step that count as speculating", default=1.2, check=above(1))
    reentry: float = setting("share of the uninterrupted acceptance", default=0.8, check=within(0, 1))
    prefix_tokens: int = setting("median common prefix in S7", default=16, check=at_least(0))


@dataclass(frozen=True, kw_only=True, slots=True)
class OnInconclusive:
    boundary: Inconclusive = setting("S1, S2, S3 twice inconclusive", default="roll_back")
    others: Inconclusive = setting("the other checks", default="keep")


@dataclass(frozen=True, kw_only=True, slots=True)
class Smoke:
    checks: tuple[CheckId, ...] = setting(
        "in this order; S3 is the first to leave the open state, so it names what dies there",
        default=("S0", "S1", "S3", "S2", "S7", "S4", "S5", "S6"),
    )
    budget_s: float = setting("for all checks together", default=180.0, check=above(0))
    token_gap_s: float = setting("this long without a token is a hang", default=60.0, check=above(0))
    floors: Floors = setting("what counts as enough", default=Floors())
    prompts: str | None = setting("JSONL on this machine, beside the playbook; None: built in", default=None)
    exact_outputs: bool = setting("float32 server: S7 compares whole answers", default=False)
    on_inconclusive: OnInconclusive = setting("without data", default=OnInconclusive())


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    levels: tuple[int, ...] = setting("concurrent requests", default=(1, 2, 5, 10), check=sizes_problem)
    requests: int = setting("per level, at least", default=30, check=at_least(1))
    max_tokens: int = setting("of each answer", default=512, check=at_least(1))
    window_s: float | None = setting(
        "seconds of a steady window per level; None: by count of requests", default=None, check=above(0)
    )
    repeats: int = setting("of each level and arm", default=1, check=at_least(1))
    api: Api = setting("generate, completions or chat", default="generate")
    ignore_eos: bool = setting("every answer has just max_tokens", default=True)
    prompts: str | None = setting("JSONL, ShareGPT-like too; None: smoke.prompts or built in", default=None)
    prompt_tokens: tuple[int, ...] | None = setting(
        "random prompts of so many tokens, [from, to], instead", default=None, check=span_problem
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Playbook:
    name: str = setting("what plans and journals call it")
    model: Model = setting("what is served")
    draft: Draft | None = setting("None: no speculation", default=None)
    server: Server = setting("flags of the server", default=Server())
    gate: Gate = setting("when to speculate", default=Gate())
    env: Environment = setting("environment of the server", default=Environment())
    ready: Ready = setting("clocks of the load", default=Ready())
    stop: Stop = setting("how the old server goes", default=Stop())
    smoke: Smoke = setting("the proof", default=Smoke())
    sweep: Sweep = setting("levels to measure", default=Sweep())
    activation: Literal["in_place", "copy"] = setting(
        "copy: launch from a copy of the package, for installs that are shared or read-only",
        default="in_place",
    )
    patches: tuple[str, ...] = setting("patches besides the gate's own, in this order", default=())


def load_playbook(
    name_or_path: str, overrides: Sequence[Override] = (), variables: Mapping[str, str] | None = None
) -> Playbook:
    """Read a playbook: `${name}` filled from `variables` (the instance's `vars`), then overrides applied.

    Raises ConfigError for the file and UsageError for an override, both starting with where.
    """
    source = read_source(find_playbook(name_or_path), what="playbook")
    return read_playbook(source, overrides, variables or {})


def read_playbook(source: Source, overrides: Sequence[Override], variables: Mapping[str, str]) -> Playbook:
    apply_overrides(source.root, overrides)
    fill_variables(source.root, variables)
    playbook = read_node(source.root, Playbook)
    if playbook.draft is not None:
        playbook = replace(playbook, draft=settle_tokens(playbook.draft, child(source.root, "draft")))
    return resolve_prompts(playbook, source.path.parent)


def settle_tokens(draft: Draft, spot: Node) -> Draft:
    """With topk 1 a verify is a chain of num_steps + 1 tokens, whatever SGLang is told."""
    tokens = draft.num_draft_tokens
    place = child(spot, "num_draft_tokens")
    if draft.topk > 1 and tokens < 2:
        raise complain(place, f"draft.num_draft_tokens: give it, 2 or more, with topk {draft.topk}")
    if draft.topk == 1 and tokens not in (0, draft.num_steps + 1):
        raise complain(
            place,
            f"draft.num_draft_tokens: with topk 1 it is num_steps + 1 = {draft.num_steps + 1}, not {tokens}",
        )
    return replace(draft, num_draft_tokens=tokens or draft.num_steps + 1)


def resolve_prompts(playbook: Playbook, folder: Path) -> Playbook:
    """Paths beside the playbook; the sweep has the smoke test's prompts where it has none of its own."""

    def place(prompts: str | None) -> str | None:
        return str(folder / Path(prompts).expanduser()) if prompts else None

    smoke = replace(playbook.smoke, prompts=place(playbook.smoke.prompts))
    sweep = replace(playbook.sweep, prompts=place(playbook.sweep.prompts) or smoke.prompts)
    return replace(playbook, smoke=smoke, sweep=sweep)
