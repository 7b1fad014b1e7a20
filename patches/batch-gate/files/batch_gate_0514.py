"""The gate in the scheduler and the server arguments of 0.5.14 and later; no torch at import.

These releases have a gate of their own (adaptive speculation with a zero-step tier), which is another
server argument: both at once are refused. What moved between them is told by looking, never by a version.
"""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

from sglang.srt.speculative import batch_gate
from sglang.srt.speculative.batch_gate import KEY, GateConsole

logger = logging.getLogger(__name__)

# Beyond batch_gate's own: name, value that is fine, what to say. Absent from a release: fine.
_REFUSED = (
    ("speculative_use_rejection_sampling", False, "rejection sampling (a plain step proposes nothing)"),
    ("enable_unified_memory", False, "the unified memory pool (its slots move)"),
    ("decoupled_spec_role", "null", "decoupled speculation"),
    ("return_hidden_states_mode", None, "returned hidden states"),
    ("attn_cp_size", 1, "context parallelism"),
    ("dcp_size", 1, "decode context parallelism"),
    ("enable_watermark", False, "watermarking (a catch-up samples nothing)"),
)


def refusal(args: Any) -> str | None:
    """Why a server with these arguments cannot be gated, as a sentence; None if it can be (or need not)."""
    why = batch_gate.refusal(args)
    if why is not None or args.speculative_disable_batch_threshold is None:
        return why
    for name, fine, words in _REFUSED:
        if getattr(args, name, fine) not in (fine, None):
            return f"--speculative-disable-batch-threshold does not work with {words}."
    return None


def check_arguments(args: Any) -> None:
    """Called once all server arguments are settled; raises ValueError with the sentence."""
    why = refusal(args)
    if why is not None:
        raise ValueError(why)


def check_worker(worker: Any) -> None:
    """Refuse models whose past cannot be run again; called when the pools are there.

    Beyond batch_gate.check_model, which asks fields of the runner that later releases do not have.
    """
    if getattr(worker.req_to_token_pool, "mamba_pool", None) is not None:
        what = "hybrid models (the recurrent state of the past is gone)"
    elif getattr(worker.draft_worker, "seed_dsa_topk_from_draft_extend", False):
        what = "sparse-attention drafts that carry their index choices from step to step"
    else:
        return
    raise ValueError(f"--speculative-disable-batch-threshold does not work with {what}.")


def console_of(scheduler: Any) -> GateConsole | None:
    """As batch_gate.console_of; the rank count is the group's own, for who holds it has moved."""
    worker = getattr(scheduler.draft_worker, "batch_gate", None)
    if worker is None:
        return None
    import torch

    reporter = scheduler.metrics_reporter
    seen = SimpleNamespace(
        tp_size=torch.distributed.get_world_size(scheduler.tp_cpu_group),
        tp_cpu_group=scheduler.tp_cpu_group,
        attn_tp_rank=None,
        enable_metrics=reporter.enable_metrics,
        metrics_collector=scheduler.metrics_collector,
        current_scheduler_metrics_enabled=reporter.current_scheduler_metrics_enabled,
    )
    reporter.gate_console = GateConsole(seen, worker.gate)
    return reporter.gate_console


def internal_state(scheduler: Any) -> dict[str, Any]:
    """What the gate adds to the internal state: its report, and the threshold as it is now."""
    console = scheduler.gate_console
    if console is None:
        return {}
    report = console.report()
    return {"speculative_gate": report, KEY: report["threshold"]}


def set_state(scheduler: Any, wanted: dict[str, Any]) -> Any:
    """Answer to a /set_internal_state request that names the threshold.

    The server arguments are not touched: they are frozen, and the internal state says what holds.
    """
    from sglang.srt.managers.io_struct import SetInternalStateReqOutput

    console = scheduler.gate_console
    updated = False
    if console is None:
        logger.warning(f"{KEY} cannot be set: this server was started without it.")
    else:
        updated = console.set_threshold(wanted)
    fields: dict[str, Any] = {"updated": updated}
    if "server_args" in SetInternalStateReqOutput.__annotations__:  # until 0.5.15.post1
        fields["server_args"] = {KEY: None if console is None else console.report()["threshold"]}
    return SetInternalStateReqOutput(**fields)
