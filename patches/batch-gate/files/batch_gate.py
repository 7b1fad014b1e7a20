"""Speculate only while the running batch is small: policy, counters, live control.

The same file serves every release; what differs between the workers is in batch_gate_v1.py and
batch_gate_v2.py. Nothing here runs a model.

The gate closes when the decode batch about to be launched holds more than `threshold` requests and
opens again once `hysteresis` further steps at or below it have run. A batch in which no request has
lived through a closed step opens at once: it has nothing to catch up. Every input of the decision is
the same on all tensor-parallel ranks, so is the decision.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

logger = logging.getLogger(__name__)

KEY = "speculative_disable_batch_threshold"
DEFAULT_HYSTERESIS_STEPS = 4
RING_STEPS = 256


def add_arguments(parser: Any) -> None:
    parser.add_argument(
        "--speculative-disable-batch-threshold",
        type=int,
        default=None,
        metavar="T",
        help="Speculate while the running batch has at most T requests; decode plainly above.",
    )
    parser.add_argument(
        "--speculative-gate-hysteresis",
        type=int,
        default=DEFAULT_HYSTERESIS_STEPS,
        metavar="N",
        help="Decode steps at or below the threshold before speculation starts again.",
    )


# Server arguments that the gate does not work with: name, value that is fine, what to say.
_REFUSED = (
    ("speculative_adaptive", False, "--speculative-adaptive (it changes the draft length on its own)"),
    ("enable_dp_attention", False, "DP attention (every rank would decide by its own batch)"),
    ("pp_size", 1, "pipeline parallelism"),
    ("disaggregation_mode", "null", "prefill/decode disaggregation"),
    ("enable_multi_layer_eagle", False, "multi-layer EAGLE drafts"),
    ("enable_two_batch_overlap", False, "two-batch overlap"),
    ("enable_pdmux", False, "prefill/decode multiplexing"),
    ("enable_hisparse", False, "HiSparse attention"),
    ("enable_hierarchical_cache", False, "the hierarchical cache (reloaded slots carry no draft KV)"),
    ("enable_lora", None, "LoRA adapters"),
    ("enable_return_hidden_states", False, "--enable-return-hidden-states"),
)


def refusal(args: Any) -> str | None:
    """Why a server with these arguments cannot be gated, as a sentence; None if it can be (or need not)."""
    threshold = args.speculative_disable_batch_threshold
    if threshold is None:
        return None
    if threshold < 0 or args.speculative_gate_hysteresis < 0:
        return "--speculative-disable-batch-threshold and --speculative-gate-hysteresis must not be negative."
    if args.speculative_algorithm not in ("EAGLE", "EAGLE3"):
        return (
            "--speculative-disable-batch-threshold needs --speculative-algorithm EAGLE or EAGLE3, "
            f"this server has {args.speculative_algorithm}."
        )
    for name, fine, words in _REFUSED:
        value = getattr(args, name, fine)
        if value != fine and not (fine is None and not value):
            return f"--speculative-disable-batch-threshold does not work with {words}."
    if not str(args.device).startswith(("cuda", "cpu")):
        return f"--speculative-disable-batch-threshold does not work on device {args.device}."
    return None


def check_arguments(args: Any) -> None:
    """Called once all server arguments are settled; raises ValueError with the sentence."""
    why = refusal(args)
    if why is not None:
        raise ValueError(why)


def check_model(runner: Any) -> None:
    """Refuse targets whose past cannot be run again from the KV cache; called when the model is loaded."""
    config = runner.model_config
    recurrent = ("hybrid_gdn_config", "mamba2_config", "kimi_linear_config", "hybrid_lightning_config")
    if any(getattr(runner, name, None) is not None for name in recurrent):
        what = "hybrid models (the recurrent state of the past is gone)"
    elif getattr(runner, "is_hybrid", False) or getattr(runner, "is_hybrid_swa", False):
        what = "sliding-window models (the evicted window is gone)"
    elif getattr(config, "is_encoder_decoder", False):
        what = "encoder-decoder models"
    elif getattr(config, "is_multimodal", False):
        what = "multimodal models"
    else:
        return
    raise ValueError(f"--speculative-disable-batch-threshold does not work with {what}.")


class BatchGate:
    """Open or closed, and what has been seen: `may_open`, then `record`, once a decode step."""

    def __init__(self, threshold: int, hysteresis_steps: int):
        self.threshold = threshold
        self.hysteresis_steps = hysteresis_steps
        self.closed = False
        self.ever_closed = False
        self.open_steps = self.closed_steps = self.switches = 0
        self.catch_ups = self.catch_up_tokens = 0
        self.catch_up_seconds = 0.0
        self.ring: deque[list[Any]] = deque(maxlen=RING_STEPS)
        self._low_steps = 0

    @property
    def state(self) -> str:
        return "closed" if self.closed else "open"

    def may_open(self, batch_size: int, nothing_stale: bool) -> bool:
        """Whether the step about to be launched with `batch_size` requests may speculate. Once a step."""
        if batch_size > self.threshold:
            self._low_steps = 0
            return False
        if not self.closed:
            return True
        self._low_steps += 1
        return nothing_stale or self._low_steps > self.hysteresis_steps

    def record(self, batch_size: int, closed: bool) -> None:
        """Takes down what the step does."""
        if closed != self.closed:
            self._switch(closed, batch_size)
        if closed:
            self.closed_steps += 1
        else:
            self.open_steps += 1
        self.ring.append([self.open_steps + self.closed_steps, batch_size, self.state])

    def _switch(self, closed: bool, batch_size: int) -> None:
        self.closed = closed
        self.ever_closed |= closed
        self.switches += 1
        logger.info(
            f"Speculative gate {self.state}: #running-req: {batch_size}, threshold: {self.threshold}, "
            f"open steps: {self.open_steps}, closed steps: {self.closed_steps}"
        )

    def set_threshold(self, value: Any) -> str | None:
        """Takes effect with the next step. Returns why not, or None."""
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            return f"{KEY} must be a whole number of requests, 0 or more, not {value!r}"
        logger.info(f"Speculative gate threshold: {self.threshold} -> {value}")
        self.threshold = value
        return None

    def caught_up(self, tokens: int, requests: int, seconds: float) -> None:
        self.catch_ups += 1
        self.catch_up_tokens += tokens
        self.catch_up_seconds += seconds
        logger.info(
            f"Speculative gate caught up: {tokens} tokens of {requests} requests in {seconds * 1e3:.1f} ms"
        )

    def report(self) -> dict[str, Any]:
        return {
            "threshold": self.threshold,
            "hysteresis": self.hysteresis_steps,
            "state": self.state,
            "open_steps": self.open_steps,
            "closed_steps": self.closed_steps,
            "switches": self.switches,
            "catch_ups": self.catch_ups,
            "catch_up_tokens": self.catch_up_tokens,
            "catch_up_seconds": round(self.catch_up_seconds, 6),
            "ring": [list(entry) for entry in self.ring],
        }


class GateMetrics:
    """The gate's counters for Prometheus; made in the scheduler's process, on the rank that reports."""

    def __init__(self, labels: dict[str, Any]):
        from prometheus_client import Counter, Gauge

        names = list(labels)
        self._open = Gauge(
            "sglang:speculative_gate_open",
            "1 while decode steps speculate, 0 while they decode plainly.",
            names,
            multiprocess_mode="mostrecent",
        ).labels(**labels)
        self._totals = {
            key: Counter(f"sglang:speculative_gate_{key}_total", help_text, names).labels(**labels)
            for key, help_text in (
                ("open_steps", "Decode steps that speculated."),
                ("closed_steps", "Decode steps that decoded plainly."),
                ("switches", "Times that the gate opened or closed."),
            )
        }
        self._published = dict.fromkeys(self._totals, 0)

    def publish(self, gate: BatchGate) -> None:
        self._open.set(0 if gate.closed else 1)
        for key, counter in self._totals.items():
            now = getattr(gate, key)
            counter.inc(now - self._published[key])
            self._published[key] = now


class GateConsole:
    """The scheduler's side: log, metrics, and /set_internal_state, for the gate of its worker."""

    def __init__(self, scheduler: Any, gate: BatchGate):
        self._scheduler = scheduler
        self._gate = gate
        self._metrics: GateMetrics | None = None
        self._shown = gate.state
        if _reports_metrics(scheduler):
            self._metrics = GateMetrics(scheduler.metrics_collector.labels)
            self._metrics.publish(gate)

    def count_step(self, result: Any) -> bool:
        """Takes note of a finished decode step; True if it speculated."""
        closed = getattr(result, "gate_closed", False)
        self._shown = "closed" if closed else "open"
        if self._metrics is not None:
            self._metrics.publish(self._gate)
        return not closed

    def log_part(self) -> str:
        return f"gate: {self._shown}, "

    def report(self) -> dict[str, Any]:
        """The gate's state, and what each rank says of its own, gathered now: threshold, state, switches,
        open steps, closed steps."""
        gate = self._gate
        mine = [gate.threshold, gate.state, gate.switches, gate.open_steps, gate.closed_steps]
        return {**gate.report(), "ranks": self._gather(mine)}

    def set_threshold(self, wanted: dict[str, Any]) -> bool:
        """Set, then read back on every rank. True only if each of them has the new value."""
        value = wanted[KEY]
        why = self._gate.set_threshold(value) if len(wanted) == 1 else f"{KEY} must be set on its own"
        if why is not None:
            logger.warning(f"Speculative gate: {why}. The threshold stays {self._gate.threshold}.")
        held = self._gather(self._gate.threshold)
        return why is None and all(threshold == value for threshold in held)

    def _gather(self, value: Any) -> list[Any]:
        # Every rank handles the same control requests in the same order, so a collective is safe here.
        size = self._scheduler.tp_size
        if size == 1:
            return [value]
        import torch

        held: list[Any] = [None] * size
        torch.distributed.all_gather_object(held, value, group=self._scheduler.tp_cpu_group)
        return held


def _reports_metrics(scheduler: Any) -> bool:
    enabled = getattr(scheduler, "enable_metrics", False) and hasattr(scheduler, "metrics_collector")
    return enabled and getattr(scheduler, "current_scheduler_metrics_enabled", scheduler.attn_tp_rank == 0)


def console_of(scheduler: Any) -> GateConsole | None:
    """The console for the scheduler's speculative worker, or None where nothing is gated."""
    worker = getattr(scheduler.draft_worker, "batch_gate", None)
    return None if worker is None else GateConsole(scheduler, worker.gate)


def set_state(scheduler: Any, wanted: dict[str, Any]) -> Any:
    """Answer to a /set_internal_state request that names the threshold; truthful, unlike the stock one."""
    from sglang.srt.managers.io_struct import SetInternalStateReqOutput

    console = scheduler.gate_console
    if console is None:
        logger.warning(f"{KEY} cannot be set: this server was started without it.")
        return SetInternalStateReqOutput(updated=False, server_args={KEY: None})
    updated = console.set_threshold(wanted)
    threshold = console.report()["threshold"]
    scheduler.server_args.speculative_disable_batch_threshold = threshold
    return SetInternalStateReqOutput(updated=updated, server_args={KEY: threshold})
