"""The gate of EAGLEWorkerV2 (overlap scheduling, one-branch drafts).

The scheduler allocates KV ahead and reads back, one step late, how many tokens each request got. A closed
step therefore only answers "one each": slots are taken from what is allocated, the result says accept
length 1. Results that are read late keep their own state and stride, so a switch in between is harmless.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode
from sglang.srt.speculative.batch_gate_catch_up import BONUS, DraftState
from sglang.srt.speculative.batch_gate_plain import PlainDecode


class GatedEagleWorkerV2:
    """Hooks of EAGLEWorkerV2: `step` before it decodes, `prefilled` and `extended` once draft KV is there."""

    def __init__(self, worker: Any):
        draft = worker.draft_worker
        self._draft_state = DraftState(worker, draft.draft_runner, draft.draft_tp_context)
        self.gate = self._draft_state.gate
        self._plain = PlainDecode(worker.target_worker.model_runner, worker.gpu_id)
        self._worker = worker
        self._device_module = torch.get_device_module(worker.device)

    @classmethod
    def of(cls, worker: Any) -> GatedEagleWorkerV2 | None:
        gated = worker.server_args.speculative_disable_batch_threshold is not None
        return cls(worker) if gated else None

    def prefilled(self, batch: Any) -> None:
        self._draft_state.prefilled(batch.reqs, batch.extend_prefix_lens, batch.out_cache_loc)

    def extended(self, batch: Any) -> None:
        self._draft_state.extended(batch.out_cache_loc)

    def step(self, batch: Any) -> Any | None:
        """The result of a plain step if the gate is closed for this batch; None to speculate."""
        if batch.forward_mode.is_idle() or batch.spec_info is None:
            return None
        if self._draft_state.may_speculate(batch.reqs, batch.spec_info, lambda: batch):
            return None
        return self._decode_plainly(batch)

    def _decode_plainly(self, batch: Any) -> Any:
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
        batch.seq_lens_cpu = batch.seq_lens_cpu + 1
        batch.seq_lens_sum = batch.seq_lens_sum + count
        # What the scheduler waits for before it prepares the next step is that these lengths are there.
        # A plain step knows them beforehand, so the host need not wait for the forward.
        done = self._device_module.Event()
        done.record()
        with self._plain():
            out = self._worker.target_worker.forward_batch_generation(batch)
        self._draft_state.decoded_plainly(batch.reqs, slots)
        self._fill_result(out, batch, count, done)
        return out

    def _fill_result(self, out: Any, batch: Any, count: int, done: Any) -> None:
        """Say "one token each" in the terms of a speculative result."""
        tokens, device = out.next_token_ids, out.next_token_ids.device
        out.next_draft_input = self._draft_state.placeholder(
            tokens, new_seq_lens=batch.seq_lens, verify_done=done
        )
        out.accept_lens = torch.ones((count,), dtype=torch.int32, device=device)
        out.gate_closed = True
        if "speculative_num_draft_tokens" in type(out).__dataclass_fields__:
            out.speculative_num_draft_tokens = 1
            if batch.return_logprob:
                logprobs = out.logits_output.next_token_logprobs
                out.logits_output.next_token_logprobs = logprobs.view(count, 1)
        else:  # up to 0.5.10 the scheduler steps through the tokens by the worker's draft length
            stride = self._worker.speculative_num_draft_tokens
            padded = tokens.new_zeros((count, stride))
            padded[:, 0] = tokens
            out.next_token_ids = padded.flatten()
