"""Makes the draft state right again before the first speculative step after a closed stretch.

For the positions whose draft KV is stale the target runs once more over tokens that it has seen, only to
give its hidden states: its attention reads the KV that is there, what it would write goes to the pool's
padding slot. The draft then runs over the same positions, into their own slots, as in a prefill. What a
request carries from step to step (top choices, hidden state) is taken from its last position.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from sglang.srt.layers.moe.utils import (
    speculative_moe_a2a_backend_context,
    speculative_moe_backend_context,
)
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.speculative.batch_gate import BatchGate, check_model
from sglang.srt.speculative.eagle_info import EagleDraftInput

# The last token of a request that has no KV yet: 0.5.11 renamed the field.
BONUS = "bonus_tokens" if "bonus_tokens" in EagleDraftInput.__dataclass_fields__ else "verified_id"
_ROUND_TOKENS = 8192


class DraftValidity:
    """One bool a KV slot: is the draft's KV in it made from the slot's own token and hidden state?

    Slots, not requests: a finished request leaves its slots to the radix cache, and the next request
    that hits them inherits what the draft does or does not know about them.
    """

    def __init__(self, slots: int, device: Any):
        self._good = torch.ones((slots,), dtype=torch.bool, device=device)

    def mark(self, slots: torch.Tensor, good: bool) -> None:
        # Not `self._good[slots] = good`: that copies the value from the host, and waits for the device.
        self._good.index_fill_(0, slots.long(), good)

    def stale_ranges(self, rows: torch.Tensor, lengths: torch.Tensor) -> list[tuple[int, int]]:
        """First stale position and one past the last, a row each; (0, 0) where all is good.

        rows: [requests, width] slots by position; lengths: [requests]. Waits for the device once.
        """
        position = torch.arange(rows.shape[1], device=rows.device)
        stale = ~self._good[rows.long()] & (position[None] < lengths[:, None])
        first = stale.to(torch.int32).argmax(dim=1)
        last = rows.shape[1] - stale.flip(1).to(torch.int32).argmax(dim=1)
        bounds = torch.stack([first, last]) * stale.any(dim=1)
        starts, ends = bounds.tolist()
        return list(zip(starts, ends, strict=True))


@dataclass(frozen=True)
class Segment:
    """Positions [start, end) of request `row` of the batch; `final` if `end` is the request's length."""

    row: int
    start: int
    end: int
    final: bool


def plan_rounds(ranges: list[list[tuple[int, int]]], lengths: list[int], budget: int) -> list[list[Segment]]:
    """Cut each request's ranges into rounds of at most `budget` tokens, one segment a request and round."""
    queues = [list(wanted) for wanted in ranges]
    rounds = []
    while any(queues):
        left, segments = budget, []
        for row, queue in enumerate(queues):
            if not queue or left <= 0:
                continue
            start, end = queue[0]
            cut = min(end, start + left)
            segments.append(Segment(row, start, cut, cut == lengths[row]))
            left -= cut - start
            if cut == end:
                queue.pop(0)
            else:
                queue[0] = (cut, end)
        rounds.append(segments)
    return rounds


class CatchUp:
    def __init__(self, validity: DraftValidity, target: Any, draft: Any, topk: int, tp_context: Any):
        self._validity = validity
        self._target, self._draft = target, draft
        self._topk, self._tp_context = topk, tp_context
        chunk = target.server_args.chunked_prefill_size or 0
        self._budget = chunk if chunk > 0 else _ROUND_TOKENS
        # With one draft layer the KV of a position depends on that position alone.
        self._independent = draft.model_config.num_hidden_layers == 1

    def run(self, batch: Any, reqs: list[Any], info: EagleDraftInput) -> tuple[int, int] | None:
        """Catch up what is stale in a decode batch and update `info` in place.

        batch: the ModelWorkerBatch about to be launched. Returns (tokens, requests), or None if tokens
        that are needed have not reached the host yet: then the step must stay plain.
        """
        lengths = batch.seq_lens_cpu.tolist()
        rows = self._target.req_to_token_pool.req_to_token[batch.req_pool_indices][:, : max(lengths)]
        stale = self._validity.stale_ranges(rows, batch.seq_lens)
        ranges = [self._wanted(bounds, length) for bounds, length in zip(stale, lengths, strict=True)]
        for req, wanted, length in zip(reqs, ranges, lengths, strict=True):
            if wanted and len(req.origin_input_ids) + len(req.output_ids) < length:
                return None
        if not any(ranges):
            return 0, 0
        for name in ("topk_p", "topk_index", "hidden_states"):
            setattr(info, name, getattr(info, name).clone())
        tokens = 0
        for segments in plan_rounds(ranges, lengths, self._budget):
            slots = torch.cat([rows[s.row, s.start : s.end] for s in segments]).long()
            self._run_round(batch, reqs, segments, slots, info)
            tokens += slots.numel()
        return tokens, sum(bool(wanted) for wanted in ranges)

    def _wanted(self, stale: tuple[int, int], length: int) -> list[tuple[int, int]]:
        start, end = stale
        if start == end:
            return []
        if not self._independent:
            return [(start, length)]
        tail = [] if end == length else [(length - 1, length)]
        return [(start, end), *tail]

    def _run_round(
        self, batch: Any, reqs: list[Any], segments: list[Segment], slots: torch.Tensor, info: EagleDraftInput
    ) -> None:
        device = slots.device
        chosen = [reqs[s.row] for s in segments]
        sub = _extend_batch(batch, chosen, segments)
        seen, shifted = [], []
        for req, segment in zip(chosen, segments, strict=True):
            tokens = _tokens(req, segment.start, segment.end + (not segment.final))
            seen += tokens[: segment.end - segment.start]
            shifted += tokens[1:] + [0] * segment.final
        ids = torch.tensor(shifted, dtype=torch.int64).to(device)
        finals = [k for k, s in enumerate(segments) if s.final]
        into = torch.tensor([segments[k].row for k in finals], device=device)
        at = torch.tensor(finals, device=device)
        if finals:  # the successor of a request's last position may be on the device only
            ends = torch.tensor([s.end - s.start for s in segments]).cumsum(0) - 1
            ids[ends[finals].to(device)] = getattr(info, BONUS)[into].to(torch.int64)

        sub.input_ids = torch.tensor(seen, dtype=torch.int64).to(device)
        sub.out_cache_loc = torch.zeros_like(slots)
        sub.capture_hidden_mode = CaptureHiddenMode.FULL
        forward = ForwardBatch.init_new(sub, self._target)
        hidden = self._target.forward(forward).logits_output.hidden_states

        out = self._extend_draft(sub, ids, slots, hidden)
        self._validity.mark(slots, True)
        if finals:
            probs = torch.softmax(out.next_token_logits[at], dim=-1)
            best = torch.topk(probs, self._topk, dim=-1)
            info.topk_p[into] = best.values.to(info.topk_p.dtype)
            info.topk_index[into] = best.indices.to(info.topk_index.dtype)
            info.hidden_states[into] = out.hidden_states[at].to(info.hidden_states.dtype)

    def _extend_draft(self, sub: Any, ids: torch.Tensor, slots: torch.Tensor, hidden: torch.Tensor) -> Any:
        sub.input_ids, sub.out_cache_loc = ids, slots
        sub.capture_hidden_mode = CaptureHiddenMode.LAST
        sub.spec_info = EagleDraftInput(
            hidden_states=hidden, num_tokens_per_req=1, num_tokens_for_logprob_per_req=1
        )
        sub.spec_info.capture_hidden_mode = CaptureHiddenMode.LAST
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._tp_context(self._draft.tp_group))
            stack.enter_context(speculative_moe_backend_context())
            stack.enter_context(speculative_moe_a2a_backend_context())
            forward = ForwardBatch.init_new(sub, self._draft)
            forward.return_logprob = False
            return self._draft.forward(forward).logits_output


class DraftState:
    """The gate of one worker and what it must remember of the draft: the part that both workers share.

    Requests carry two marks: `gate_stale`, its last step was plain; `gate_inherits`, it began on cached
    slots, which a closed stretch may have written.
    """

    def __init__(self, worker: Any, draft: Any, tp_context: Any):
        args, target = worker.server_args, worker.target_worker.model_runner
        check_model(target)
        self.gate = BatchGate(args.speculative_disable_batch_threshold, args.speculative_gate_hysteresis)
        pool, self._topk = worker.token_to_kv_pool_allocator, worker.topk
        self._validity = DraftValidity(int(pool.size) + 2 * int(pool.page_size) + 1, worker.device)
        self._catch_up = CatchUp(self._validity, target, draft, worker.topk, tp_context)
        config = draft.model_config
        self._hidden_size = getattr(config, "spec_hidden_size", config.hidden_size)
        self._hidden_dtype = config.dtype
        self._blank: tuple[torch.Tensor, ...] | None = None

    def prefilled(self, reqs: list[Any], prefixes: list[int] | None, slots: torch.Tensor) -> None:
        if not self.gate.ever_closed:
            return
        self._validity.mark(slots, True)
        for req, prefix in zip(reqs, prefixes or [0] * len(reqs), strict=True):
            req.gate_stale = False
            req.gate_inherits = prefix > 0

    def extended(self, slots: torch.Tensor) -> None:
        """Draft KV was written to all of `slots`; those not accepted are written again before use."""
        if self.gate.ever_closed:
            self._validity.mark(slots, True)

    def decoded_plainly(self, reqs: list[Any], slots: torch.Tensor) -> None:
        self._validity.mark(slots, False)
        for req in reqs:
            req.gate_stale = True

    def may_speculate(self, reqs: list[Any], info: EagleDraftInput, worker_batch: Callable[[], Any]) -> bool:
        """The gate's word for the step about to be launched, its draft state made good if it is open."""
        stale = any(getattr(req, "gate_stale", False) for req in reqs)
        is_open = self.gate.may_open(len(reqs), not stale)
        if is_open and (stale or any(getattr(req, "gate_inherits", False) for req in reqs)):
            is_open = self._make_good(reqs, info, worker_batch())
        self.gate.record(len(reqs), closed=not is_open)
        return is_open

    def _make_good(self, reqs: list[Any], info: EagleDraftInput, batch: Any) -> bool:
        started = time.perf_counter()
        done = self._catch_up.run(batch, reqs, info)
        if done is None:
            return False
        for req in reqs:
            req.gate_stale = req.gate_inherits = False
        if done[0]:
            self.gate.caught_up(*done, time.perf_counter() - started)
        return True

    def placeholder(self, tokens: torch.Tensor, **fields: Any) -> EagleDraftInput:
        """Well-formed draft input after a plain step; a catch-up replaces all of it but the last tokens."""
        count = tokens.shape[0]
        if self._blank is None or self._blank[0].shape[0] < count:
            rows, device = max(2 * count, 64), tokens.device
            self._blank = (
                torch.zeros((rows, self._topk), dtype=torch.float32, device=device),
                torch.zeros((rows, self._topk), dtype=torch.int64, device=device),
                torch.zeros((rows, self._hidden_size), dtype=self._hidden_dtype, device=device),
            )
        topk_p, topk_index, hidden_states = (blank[:count] for blank in self._blank)  # never written to
        return EagleDraftInput(
            topk_p=topk_p,
            topk_index=topk_index,
            hidden_states=hidden_states,
            capture_hidden_mode=CaptureHiddenMode.LAST,
            **{BONUS: tokens.to(torch.int32)},
            **fields,
        )


def _tokens(req: Any, start: int, end: int) -> list[int]:
    """Tokens of the request at [start, end): prompt, then output."""
    prompt = len(req.origin_input_ids)
    tokens = list(req.origin_input_ids[start:end])
    if end > prompt:
        tokens += list(req.output_ids[max(start - prompt, 0) : end - prompt])
    return tokens


def _extend_batch(batch: Any, reqs: list[Any], segments: list[Segment]) -> Any:
    """A ModelWorkerBatch that extends the chosen requests over their segments, without sampling."""
    device = batch.seq_lens.device
    pick = torch.tensor([s.row for s in segments], dtype=torch.int64).to(device)
    starts, ends = [s.start for s in segments], [s.end for s in segments]
    sub = copy.copy(batch)
    sub.forward_mode = ForwardMode.EXTEND
    sub.req_pool_indices = batch.req_pool_indices[pick]
    sub.seq_lens_cpu = torch.tensor(ends, dtype=batch.seq_lens_cpu.dtype)
    sub.seq_lens = sub.seq_lens_cpu.to(device).to(batch.seq_lens.dtype)
    sub.orig_seq_lens = sub.seq_lens.to(torch.int32)
    sub.seq_lens_sum = sum(ends)
    sub.extend_prefix_lens = starts
    sub.extend_seq_lens = [s.end - s.start for s in segments]
    sub.extend_logprob_start_lens = list(sub.extend_seq_lens)
    sub.extend_num_tokens = sum(sub.extend_seq_lens)
    sub.is_extend_in_batch = sub.all_extend_in_batch = True
    sub.reqs = reqs
    sub.multimodal_inputs = [None] * len(reqs)
    sub.lora_ids = [getattr(req, "lora_id", None) for req in reqs]
    sub.return_logprob = sub.has_grammar = sub.is_prefill_only = False
    sub.spec_info = sub.sampling_info = None
    for name in (
        "top_logprobs_nums", "token_ids_logprobs", "extend_input_logprob_token_ids", "input_embeds",
        "replace_embeds", "replace_positions", "token_type_ids",
    ):  # fmt: skip
        setattr(sub, name, None)
    return sub
