"""The gate of the EAGLEWorkerV2 of 0.5.13, which runs the scheduler's own batch (with overlap or without).

The scheduler puts every field of that batch back after the step, so a closed step may edit it as it likes.
What has to last goes into the result: the next draft input, and the new lengths, which are also published
as soon as the target has run. Host lengths may be missing there: some attention backends do without.
"""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode
from sglang.srt.speculative import batch_gate_v2
from sglang.srt.speculative.batch_gate import GateConsole
from sglang.srt.speculative.batch_gate_catch_up import BONUS


class _CatchUpBatch(ScheduleBatch):
    """What catch-up extends: it names two fields as the batch that workers were given before 0.5.13 did."""

    @property
    def prefix_lens(self) -> Any:
        return self.extend_prefix_lens

    @property
    def extend_lens(self) -> Any:
        return self.extend_seq_lens


def catch_up_batch(batch: ScheduleBatch) -> _CatchUpBatch:
    """A shallow copy with host lengths; waits for the device where the scheduler keeps none."""
    view = object.__new__(_CatchUpBatch)
    view.__dict__.update(copy.copy(batch).__dict__)
    if view.seq_lens_cpu is None:
        view.seq_lens_cpu = view.seq_lens.cpu()
    return view


class GatedEagleWorkerV2(batch_gate_v2.GatedEagleWorkerV2):
    def prefilled(self, batch: ScheduleBatch) -> None:
        self._draft_state.prefilled(batch.reqs, batch.prefix_lens, batch.out_cache_loc)

    def step(self, batch: ScheduleBatch, on_publish: Any = None) -> Any | None:
        """The result of a plain step if the gate is closed for this batch; None to speculate."""
        if batch.forward_mode.is_idle() or batch.spec_info is None:
            return None
        if self._draft_state.may_speculate(batch.reqs, batch.spec_info, lambda: catch_up_batch(batch)):
            return None
        out = self._decode_plainly(batch)
        if on_publish is not None:
            on_publish(out.new_seq_lens)
        return out

    def _decode_plainly(self, batch: ScheduleBatch) -> Any:
        last = getattr(batch.spec_info, BONUS).to(torch.int64)
        lengths, count = batch.seq_lens, len(batch.reqs)
        # The lengths were made on the scheduler's stream and are used on this one.
        lengths.record_stream(self._device_module.current_stream())
        pool = self._worker.req_to_token_pool.req_to_token
        slots = pool[batch.req_pool_indices, lengths].to(torch.int64)
        batch.spec_info = None
        batch.capture_hidden_mode = CaptureHiddenMode.NULL
        batch.input_ids, batch.out_cache_loc = last, slots
        batch.seq_lens = lengths + 1  # a decode step counts the token that it writes
        if batch.seq_lens_cpu is not None:
            batch.seq_lens_cpu = batch.seq_lens_cpu + 1
            batch.seq_lens_sum = int(batch.seq_lens_cpu.sum())
        with self._plain():
            out = self._worker.target_worker.forward_batch_generation(batch)
        self._draft_state.decoded_plainly(batch.reqs, slots)
        out.next_draft_input = self._draft_state.placeholder(out.next_token_ids)
        out.new_seq_lens = batch.seq_lens
        out.accept_lens = torch.ones((count,), dtype=torch.int32, device=slots.device)
        out.speculative_num_draft_tokens = 1
        if batch.return_logprob:
            logprobs = out.logits_output.next_token_logprobs
            out.logits_output.next_token_logprobs = logprobs.view(count, 1)
        out.gate_closed = True
        return out


def console_of(scheduler: Any) -> GateConsole | None:
    """As batch_gate.console_of; here ranks and metrics are in components of the scheduler."""
    worker = getattr(scheduler.draft_worker, "batch_gate", None)
    if worker is None:
        return None
    reporter = scheduler.metrics_reporter
    seen = SimpleNamespace(
        tp_size=scheduler.ps.tp_size,
        tp_cpu_group=scheduler.tp_cpu_group,
        attn_tp_rank=scheduler.ps.attn_tp_rank,
        enable_metrics=reporter.enable_metrics,
        metrics_collector=scheduler.metrics_collector,
        current_scheduler_metrics_enabled=reporter.current_scheduler_metrics_enabled,
    )
    reporter.gate_console = GateConsole(seen, worker.gate)
    return reporter.gate_console
