"""The launch command and environment of the new server, from a playbook, a release and a gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specops.config.releases import compared_arguments
from specops.steps.gate import Gate, parse_release, sizes_for
from specops.steps.patch_launch import patch_flags

if TYPE_CHECKING:
    from specops.config.patch import Patch
    from specops.config.playbook import Draft, Playbook

HEADROOM = 5
"""The smoke test runs at T+5; a server that admits fewer requests would queue them instead."""
GRAPH_FLAG_RENAMED = (0, 5, 14, 0)
"""From here on the decode graph flags end in -decode; the old names are gone from 0.5.20 on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    argv: tuple[str, ...]
    expect: Mapping[str, Any]
    """Server arguments that the running server must report (`/get_server_info`)."""
    max_running: int
    notes: tuple[str, ...]


def admitted(playbook: Playbook, levels: Sequence[int]) -> int:
    """Running requests to admit: the playbook's, at least T+5, and the top level of a sweep asked for."""
    asked = playbook.server.max_running_requests or 0
    return max([asked, playbook.gate.threshold + HEADROOM, *levels])


def build_launch(
    playbook: Playbook,
    *,
    python: str,
    port: int,
    release: str,
    gate: Gate,
    gate_path: str | None,
    levels: Sequence[int],
    patches: Sequence[Patch] = (),
) -> Launch:
    """`levels` are those of a sweep that was asked for, else empty; `gate_path` is the native gate's file.

    Raises Refused where the playbook gives a flag of a patch another value.
    """
    server = playbook.server
    running = admitted(playbook, levels)
    notes = []
    if server.max_running_requests and running > server.max_running_requests:
        notes.append(f"--max-running-requests is raised from {server.max_running_requests} to {running}")
    args: dict[str, Any] = {
        "model-path": playbook.model.path,
        "served-model-name": playbook.model.served_name,
        "host": server.host,
        "port": port,
        "tp-size": server.tp if server.tp > 1 else None,
        "mem-fraction-static": server.mem_fraction_static,
        "context-length": server.context_length,
        "max-running-requests": running,
        "decode-log-interval": server.decode_log_interval,
        "enable-metrics": True,
    }
    if playbook.draft:
        args |= _draft_args(playbook.draft)
    if gate.kind == "native":
        args |= {"speculative-adaptive": True, "speculative-adaptive-config": gate_path}
    args |= patch_flags(patches, playbook)
    args |= _graph_args(playbook, release, gate, running)
    args |= server.args
    argv = (python, "-m", "sglang.launch_server", *words(args))
    return Launch(argv=argv, expect=_expected(args, release), max_running=running, notes=tuple(notes))


def _expected(args: Mapping[str, Any], release: str) -> dict[str, Any]:
    """What decides the deploy, of what is asked for: data/compared.json, which the agent reads too."""
    return {
        name: args[flag]
        for name, since in compared_arguments().items()
        if args.get(flag := name.replace("_", "-")) is not None
        and parse_release(since) <= parse_release(release)
    }


def _draft_args(draft: Draft) -> dict[str, Any]:
    return {
        "speculative-algorithm": "EAGLE3",
        "speculative-draft-model-path": draft.path,
        "speculative-num-steps": draft.num_steps,
        "speculative-eagle-topk": draft.topk,
        "speculative-num-draft-tokens": draft.num_draft_tokens,
    }


def _graph_args(playbook: Playbook, release: str, gate: Gate, running: int) -> dict[str, Any]:
    """The captured sizes, only where the native gate would be inexact without T among them."""
    if not graphs_on(playbook):
        return {}
    sizes: Sequence[int] | None = playbook.server.cuda_graph_bs
    if gate.kind == "native":
        sizes = sizes_for(playbook.gate.threshold, running, sizes)
    if not sizes:
        return {}
    name = "cuda-graph-bs-decode" if parse_release(release) >= GRAPH_FLAG_RENAMED else "cuda-graph-bs"
    return {name: list(sizes)}


def graphs_on(playbook: Playbook) -> bool:
    args = playbook.server.args
    return not args.get("disable-cuda-graph") and args.get("device") != "cpu"


def words(args: Mapping[str, Any]) -> list[str]:
    """Flags as argv words: True is a bare flag, False and None are left out, a list follows its flag."""
    out: list[str] = []
    for flag, value in args.items():
        if value is None or value is False:
            continue
        out.append(f"--{flag}")
        if value is True:
            continue
        out.extend(str(item) for item in value) if isinstance(value, (list, tuple)) else out.append(
            str(value)
        )
    return out
