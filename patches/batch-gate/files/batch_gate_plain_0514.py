"""A plain decode step of the target on a server of 0.5.14 or later, whose graphs are captured to verify."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from typing import Any

from sglang.srt.model_executor.cuda_graph_config import Backend, Phase, check_cuda_graph_backend
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.utils.common import get_available_gpu_memory

logger = logging.getLogger(__name__)


class PlainDecode:
    """`with plain:` runs the target's forward with decode graphs (or none) in place of the verify graphs.

    The stock graphs of a speculative server expect num_draft_tokens rows a request but accept any batch
    by its size alone, so a plain batch must never reach them: the choice is made here, not by asking.
    The second runner has an attention backend of its own, because graph state tensors are sized by runner.
    """

    def __init__(self, runner: Any, gpu_id: int):
        self._runner = runner
        self._graphs: Any = None
        self._backend: Any = None
        if runner.device != "cpu" and not check_cuda_graph_backend(Phase.DECODE, Backend.DISABLED):
            self._capture(gpu_id)

    def _capture(self, gpu_id: int) -> None:
        from sglang.srt.model_executor.runner import DecodeCudaGraphRunner

        runner = self._runner
        started, before_gb = time.perf_counter(), get_available_gpu_memory(runner.device, gpu_id)
        saved = (
            runner.spec_algorithm, runner.init_new_workspace, runner.attn_backend,
            runner.decode_cuda_graph_runner,
        )  # fmt: skip
        try:
            # Without an algorithm the graph runner captures DECODE, one token a request, no spec_info.
            runner.spec_algorithm = SpeculativeAlgorithm.NONE
            runner.attn_backend = runner._get_attention_backend(init_new_workspace=True)
            self._graphs = DecodeCudaGraphRunner(
                runner,
                attn_backend=runner.attn_backend,
                speculative_num_steps=0,
                speculative_num_draft_tokens=1,
            )
            self._backend = runner.attn_backend
        finally:
            (
                runner.spec_algorithm, runner.init_new_workspace, runner.attn_backend,
                runner.decode_cuda_graph_runner,
            ) = saved  # fmt: skip
        if not self._graphs.capture_forward_mode.is_decode() or _width(self._graphs) != 1:
            raise RuntimeError("speculative gate: the decode graphs were captured in another mode")
        used_gb = before_gb - get_available_gpu_memory(runner.device, gpu_id)
        logger.info(
            f"Speculative gate: captured plain decode graphs bs={self._graphs.capture_bs} in "
            f"{time.perf_counter() - started:.2f} s. mem usage={used_gb:.2f} GB."
        )

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        runner = self._runner
        saved = runner.attn_backend, runner.decode_cuda_graph_runner
        if self._backend is not None:
            runner.attn_backend = self._backend
        runner.decode_cuda_graph_runner = self._graphs
        try:
            yield
        finally:
            runner.attn_backend, runner.decode_cuda_graph_runner = saved


def _width(graphs: Any) -> int:
    """Rows a request; renamed with 0.5.16."""
    names = ("captured_req_width", "num_tokens_per_bs")
    return int(next(getattr(graphs, name) for name in names if hasattr(graphs, name)))
