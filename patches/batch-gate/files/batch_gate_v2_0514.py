"""The gate of the EAGLEWorkerV2 of 0.5.14 and later, with trees too.

As on 0.5.13 the scheduler puts every field of its batch back after the step. It learns the lengths of the
next step through `on_publish`: a plain step knows them beforehand and publishes before its forward, so that
the host never waits for it. What moved between the releases is told by looking, never by a version number.
"""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

import torch
from sglang.srt.layers.moe.utils import (
    speculative_moe_a2a_backend_context,
    speculative_moe_backend_context,
)
from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch
from sglang.srt.speculative import batch_gate_catch_up, batch_gate_v2_0513, spec_utils
from sglang.srt.speculative.batch_gate_0514 import check_worker
from sglang.srt.speculative.batch_gate_catch_up import CatchUp, DraftState
from sglang.srt.speculative.batch_gate_plain_0514 import PlainDecode
from sglang.srt.speculative.eagle_info import EagleDraftExtendInput

# Since 0.5.16 the hidden mode of a forward is an argument; before, a field of the batch, used once.
_MODE_IS_ARGUMENT = "capture_hidden_mode" in inspect.signature(ForwardBatch.init_new).parameters
# The event after which a forward no longer reads what the scheduler writes; renamed in 0.5.18.
_READ_DONE = ("shared_read_done_event", "war_fastpath_read_done_event")


class _Forwards:
    """`ForwardBatch.init_new` as the catch-up calls it: with the hidden mode on the batch."""

    @staticmethod
    def init_new(batch: Any, runner: Any) -> ForwardBatch:
        if not _MODE_IS_ARGUMENT:
            return ForwardBatch.init_new(batch, runner)
        return ForwardBatch.init_new(
            batch,
            runner,
            capture_hidden_mode=batch.capture_hidden_mode,
            return_hidden_states_before_norm=False,
        )


batch_gate_catch_up.ForwardBatch = _Forwards


class _CatchUpBatch(batch_gate_v2_0513._CatchUpBatch):
    """None of its requests is prefilling: later releases look for the last chunk of each that extends."""

    @property
    def decoding_reqs(self) -> Any:
        return self.reqs

    @property
    def req_pool_indices_cpu(self) -> Any:
        return self.req_pool_indices.cpu()


def catch_up_batch(batch: ScheduleBatch) -> _CatchUpBatch:
    """A shallow copy with host lengths; waits for the device where the scheduler keeps none."""
    view = object.__new__(_CatchUpBatch)
    view.__dict__.update(batch.__dict__)
    if view.seq_lens_cpu is None:
        view.seq_lens_cpu = view.seq_lens.cpu()
    return view


def draft_context(draft: Any) -> Any:
    """Where the draft's tensor-parallel group is set, in the words of 0.5.14, 0.5.21, 0.5.22 and 0.5.23."""
    if not hasattr(draft, "draft_tp_context"):
        placed = draft.parallel_layout if hasattr(draft, "parallel_layout") else draft.draft_owns_attention
        return spec_utils.draft_tp_context(placed)
    owns = {"owns_attention": draft.draft_owns_attention} if hasattr(draft, "draft_owns_attention") else {}
    return draft.draft_tp_context(draft.draft_runner.tp_group, **owns)


class _CatchUp(CatchUp):
    def _extend_draft(self, sub: Any, ids: torch.Tensor, slots: torch.Tensor, hidden: torch.Tensor) -> Any:
        sub.input_ids, sub.out_cache_loc = ids, slots
        sub.capture_hidden_mode = CaptureHiddenMode.LAST
        sub.spec_info = EagleDraftExtendInput(
            hidden_states=hidden, num_tokens_per_req=1, num_tokens_for_logprob_per_req=1
        )
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._tp_context())
            stack.enter_context(speculative_moe_backend_context())
            stack.enter_context(speculative_moe_a2a_backend_context())
            forward = _Forwards.init_new(sub, self._draft)
            forward.return_logprob = False
            return self._draft.forward(forward).logits_output


class GatedEagleWorkerV2(batch_gate_v2_0513.GatedEagleWorkerV2):
    """Hooks of EAGLEWorkerV2: `step` before it decodes, `prefilled` and `extended` once draft KV is there."""

    def __init__(self, worker: Any):
        check_worker(worker)
        draft, target = worker.draft_worker, worker.target_worker.model_runner
        self._worker, self._target, self._draft = worker, target, draft.draft_runner
        self._draft_state = DraftState(worker, draft.draft_runner, None)
        self._draft_state._catch_up = _CatchUp(
            self._draft_state._validity,
            target,
            draft.draft_runner,
            worker.topk,
            lambda: draft_context(draft),
        )
        self.gate = self._draft_state.gate
        self._plain = PlainDecode(target, worker.gpu_id)
        self._read_done = next(name for name in _READ_DONE if hasattr(target, name))
        self.plain_was_last = False

    def prefilled(self, batch: ScheduleBatch) -> None:
        super().prefilled(batch)
        self.plain_was_last = False

    def step(self, batch: ScheduleBatch, on_publish: Any = None, grammar_barrier: Any = None) -> Any | None:
        """The result of a plain step if the gate is closed for this batch; None to speculate."""
        self.plain_was_last = False
        if batch.forward_mode.is_idle() or batch.spec_info is None:
            return None
        if self._draft_state.may_speculate(batch.reqs, batch.spec_info, lambda: catch_up_batch(batch)):
            # A catch-up's event must not stand for the step that follows; without one the scheduler waits.
            setattr(self._draft, self._read_done, None)
            return None
        self.plain_was_last = True
        return self._decode_alone(batch, on_publish, grammar_barrier)

    def _decode_alone(self, batch: ScheduleBatch, on_publish: Any, grammar_barrier: Any) -> Any:
        last = batch.spec_info.bonus_tokens.to(torch.int64)
        lengths, count = batch.seq_lens, len(batch.reqs)
        pool = self._worker.req_to_token_pool.req_to_token
        slots = pool[batch.req_pool_indices, lengths].to(torch.int64)
        batch.spec_info = None
        batch.input_ids, batch.out_cache_loc = last, slots
        batch.seq_lens = lengths + 1  # a decode step counts the token that it writes
        if batch.seq_lens_cpu is not None:
            batch.seq_lens_cpu = batch.seq_lens_cpu + 1
            batch.seq_lens_sum = int(batch.seq_lens_cpu.sum())
        if on_publish is not None:
            on_publish(batch.seq_lens)
        if grammar_barrier is not None and batch.has_grammar:
            grammar_barrier()  # the mask of this step needs the tokens of the last one
        setattr(self._target, self._read_done, None)  # a verification's, if there is one
        with self._plain():
            out = self._worker.target_worker.forward_batch_generation(batch)
        self._draft_state.decoded_plainly(batch.reqs, slots)
        self._fill(out, batch, count)
        return out

    def _fill(self, out: Any, batch: ScheduleBatch, count: int) -> None:
        """Say "one token each" in the terms of a speculative result."""
        out.next_draft_input = self._draft_state.placeholder(out.next_token_ids)
        out.new_seq_lens = batch.seq_lens
        out.accept_lens = torch.ones((count,), dtype=torch.int32, device=batch.seq_lens.device)
        out.speculative_num_draft_tokens = 1
        if batch.return_logprob:
            logprobs = out.logits_output.next_token_logprobs
            out.logits_output.next_token_logprobs = logprobs.view(count, 1)
        out.gate_closed = True
