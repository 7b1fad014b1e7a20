"""The gate in the terms of releases before 0.5.9, of 0.5.10 (EAGLEWorkerV2) and of 0.5.11.

batch_gate_v1.py and batch_gate_v2.py speak as 0.5.9 and 0.5.12 do. What the other releases have under
another name, in another shape or not at all is told here by looking, never by a version number.
"""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.layers.moe import utils as moe
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch
from sglang.srt.speculative.eagle_info import EagleDraftInput

# Came with 0.5.6.post1; before it the draft of a mixture of experts has no transport of its own.
if not hasattr(moe, "speculative_moe_a2a_backend_context"):
    moe.speculative_moe_a2a_backend_context = contextlib.nullcontext

from sglang.srt.speculative import batch_gate_v1, batch_gate_v2
from sglang.srt.speculative.batch_gate_catch_up import CatchUp, DraftState

# 0.5.9 renamed both fields; they always counted tokens a request.
ONE_TOKEN_A_REQUEST = {
    name: 1
    for name in EagleDraftInput.__dataclass_fields__
    if name.startswith(("num_tokens_per_", "num_tokens_for_logprob_per_"))
}
# What a step without accepted drafts says of itself.
NO_DRAFTS = ("num_accepted_tokens", "num_accepted_drafts")
NO_DRAFTS_BY_REQUEST = ("accept_length_per_req_cpu", "num_accepted_drafts_per_req_cpu")
# Fields of a request that count its KV and its steps: 0.5.5 has none, 0.5.8 brought the last.
COUNTED = ("kv_committed_len", "kv_allocated_len", "decode_batch_idx")


class _Runner:
    """A model runner whose `forward` answers as since 0.5.7: with names, not with a pair."""

    def __init__(self, runner: Any):
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def forward(self, batch: Any) -> Any:
        out = self._runner.forward(batch)
        return SimpleNamespace(logits_output=out[0]) if isinstance(out, tuple) else out


class _CatchUp(CatchUp):
    def _extend_draft(self, sub: Any, ids: torch.Tensor, slots: torch.Tensor, hidden: torch.Tensor) -> Any:
        sub.input_ids, sub.out_cache_loc = ids, slots
        sub.capture_hidden_mode = CaptureHiddenMode.LAST
        sub.spec_info = EagleDraftInput(hidden_states=hidden, **ONE_TOKEN_A_REQUEST)
        sub.spec_info.capture_hidden_mode = CaptureHiddenMode.LAST
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._tp_context(self._draft.tp_group))
            stack.enter_context(moe.speculative_moe_backend_context())
            stack.enter_context(moe.speculative_moe_a2a_backend_context())
            forward = ForwardBatch.init_new(sub, self._draft)
            forward.return_logprob = False
            return self._draft.forward(forward).logits_output


class _DraftState(DraftState):
    def __init__(self, worker: Any, draft: Any, tp_context: Any):
        super().__init__(worker, draft, tp_context)
        target = _Runner(worker.target_worker.model_runner)
        self._catch_up = _CatchUp(self._validity, target, _Runner(draft), worker.topk, tp_context)


class GatedEagleWorker(batch_gate_v1.GatedEagleWorker):
    def __init__(self, worker: Any):
        super().__init__(worker)
        self._draft_state = _DraftState(worker, worker.draft_model_runner, worker.draft_tp_context)
        self.gate = self._draft_state.gate

    def _decode_plainly(self, batch: Any) -> Any:
        self._prepare(batch)
        with self._plain():
            out = self._target_worker.forward_batch_generation(batch.get_model_worker_batch())
        batch_gate_v1._append_tokens(batch, out.logits_output, out.next_token_ids.tolist())
        unfinished = batch_gate_v1._of_unfinished(batch.reqs, out.next_token_ids)
        batch.spec_info = self._draft_state.placeholder(unfinished)
        fields = type(out).__dataclass_fields__
        for name in fields.keys() & NO_DRAFTS:
            setattr(out, name, 0)
        for name in fields.keys() & NO_DRAFTS_BY_REQUEST:
            setattr(out, name, [0] * len(batch.reqs))
        out.gate_closed = True
        return out

    def _prepare(self, batch: Any) -> None:
        for req in batch.reqs:
            for name in COUNTED:
                if not hasattr(req, name):
                    setattr(req, name, 0)
        super()._prepare(batch)


class GatedEagleWorkerV2(batch_gate_v2.GatedEagleWorkerV2):
    def __init__(self, worker: Any):
        super().__init__(worker)
        draft = worker.draft_worker
        self._draft_state = _DraftState(worker, draft.draft_runner, draft.draft_tp_context)
        self.gate = self._draft_state.gate

    def _decode_plainly(self, batch: Any) -> Any:
        # Up to 0.5.5.post3 how far KV is allocated travels with the draft input, and the scheduler asks
        # the result for it.
        allocated = getattr(batch.spec_info, "allocate_lens", None)
        out = super()._decode_plainly(batch)
        if allocated is not None:
            out.allocate_lens = out.next_draft_input.allocate_lens = allocated
        if batch.return_logprob:  # a row a request, as of a verification; before 0.5.10 there are none
            logprobs = out.logits_output.next_token_logprobs
            out.logits_output.next_token_logprobs = logprobs.view(len(batch.reqs), 1)
        return out
