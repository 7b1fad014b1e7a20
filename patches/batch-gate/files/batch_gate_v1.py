"""The gate of EAGLEWorker (no overlap scheduling): tree drafts, or one-branch drafts with overlap off.

This worker owns its decode step altogether: it allocates KV, appends tokens, checks for the end, moves
grammars on and writes logprobs. A closed step does the same for one token a request, and hands spec_info
back with the unfinished requests only, as the scheduler expects of this worker.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.mem_cache.common import alloc_for_decode
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.speculative.batch_gate_catch_up import BONUS, DraftState
from sglang.srt.speculative.batch_gate_plain import PlainDecode


class GatedEagleWorker:
    """Hooks of EAGLEWorker: `step` before it decodes, `prefilled` and `extended` once draft KV is written."""

    def __init__(self, worker: Any):
        self._draft_state = DraftState(worker, worker.draft_model_runner, worker.draft_tp_context)
        self.gate = self._draft_state.gate
        self._plain = PlainDecode(worker.target_worker.model_runner, worker.gpu_id)
        self._target_worker = worker.target_worker

    @classmethod
    def of(cls, worker: Any) -> GatedEagleWorker | None:
        gated = worker.server_args.speculative_disable_batch_threshold is not None
        return cls(worker) if gated else None

    def prefilled(self, batch: Any) -> None:
        self._draft_state.prefilled(batch.reqs, batch.prefix_lens, batch.out_cache_loc)

    def extended(self, batch: Any) -> None:
        self._draft_state.extended(batch.out_cache_loc)

    def step(self, batch: Any) -> GenerationBatchResult | None:
        """The result of a plain step if the gate is closed for this batch; None to speculate."""
        if batch.forward_mode.is_idle():
            return None
        if self._draft_state.may_speculate(batch.reqs, batch.spec_info, batch.get_model_worker_batch):
            return None
        return self._decode_plainly(batch)

    def _decode_plainly(self, batch: Any) -> GenerationBatchResult:
        self._prepare(batch)
        with self._plain():
            result = self._target_worker.forward_batch_generation(batch.get_model_worker_batch())
        logits, tokens = result.logits_output, result.next_token_ids
        _append_tokens(batch, logits, tokens.tolist())
        batch.spec_info = self._draft_state.placeholder(_of_unfinished(batch.reqs, tokens))
        zeros = [0] * len(batch.reqs)
        names = GenerationBatchResult.__dataclass_fields__
        counted = (
            {"num_correct_drafts": 0, "num_correct_drafts_per_req_cpu": zeros}
            if "num_correct_drafts" in names
            else {"num_accepted_tokens": 0, "accept_length_per_req_cpu": zeros}
        )
        out = GenerationBatchResult(
            logits_output=logits,
            next_token_ids=tokens,
            can_run_cuda_graph=result.can_run_cuda_graph,
            **counted,
        )
        out.gate_closed = True
        return out

    def _prepare(self, batch: Any) -> None:
        """What the scheduler does before a plain decode step, for this worker's batches."""
        last = getattr(batch.spec_info, BONUS).to(torch.int64)
        penalties = batch.sampling_info.penalizer_orchestrator
        if penalties.is_required:
            penalties.cumulate_output_tokens(last)
        batch.spec_info = None
        batch.forward_mode = ForwardMode.DECODE
        batch.return_hidden_states = False
        batch.input_ids = last
        batch.out_cache_loc = alloc_for_decode(batch, token_per_req=1)
        for req in batch.reqs:
            req.decode_batch_idx += 1
            req.kv_committed_len += 1
            req.kv_allocated_len = req.kv_committed_len
        batch.seq_lens.add_(1)
        batch.seq_lens_cpu.add_(1)
        batch.seq_lens_sum = int(batch.seq_lens_cpu.sum())
        self._draft_state.decoded_plainly(batch.reqs, batch.out_cache_loc)


def _of_unfinished(reqs: list[Any], tokens: torch.Tensor) -> torch.Tensor:
    alive = [row for row, req in enumerate(reqs) if not req.finished()]
    if len(alive) == len(reqs):
        return tokens
    return tokens[torch.tensor(alive, dtype=torch.int64).to(tokens.device)]


def _append_tokens(batch: Any, logits: Any, tokens: list[int]) -> None:
    """Per request: the token, its end, its grammar, its logprobs, its statistics."""
    think_end = getattr(batch.model_config, "think_end_id", None)
    logprobs = logits.next_token_logprobs.tolist() if batch.return_logprob else None
    for row, (req, token) in enumerate(zip(batch.reqs, tokens, strict=True)):
        req.output_ids.append(token)
        if getattr(req, "require_reasoning", False) and think_end is not None:
            req.update_reasoning_tokens(token, think_end)
        req.check_finished()
        if req.grammar is not None and not req.finished():
            req.grammar.accept_token(token)
            req.check_finished()
        # One target step, one token: tokens per verification stay comparable across the gate.
        req.spec_verify_ct += 1
        count_none = getattr(req, "update_spec_correct_drafts_histogram", None) or getattr(
            req, "update_spec_acceptance_histogram", None
        )
        if count_none is not None:
            count_none(0)
        if logprobs is not None and req.return_logprob:
            req.output_token_logprobs_val.append(logprobs[row])
            req.output_token_logprobs_idx.append(token)
            _append_alternatives(req, logits, row)


def _append_alternatives(req: Any, logits: Any, row: int) -> None:
    if req.top_logprobs_num > 0:
        req.output_top_logprobs_val.append(_plain(logits.next_token_top_logprobs_val[row]))
        req.output_top_logprobs_idx.append(_plain(logits.next_token_top_logprobs_idx[row]))
    if req.token_ids_logprob is not None:
        req.output_token_ids_logprobs_val.append(_plain(logits.next_token_token_ids_logprobs_val[row]))
        req.output_token_ids_logprobs_idx.append(_plain(logits.next_token_token_ids_logprobs_idx[row]))


def _plain(values: Any) -> Any:
    return values.tolist() if torch.is_tensor(values) else values
