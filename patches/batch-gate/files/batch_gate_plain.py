"""A plain decode step of the target on a server whose CUDA graphs are captured for verification."""

from __future__ import annotations

import contextlib
import inspect
import logging
import time
from collections.abc import Iterator
from typing import Any

from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.utils import get_available_gpu_memory

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
        if runner.device != "cpu" and not runner.server_args.disable_cuda_graph:
            self._capture(gpu_id)

    def _capture(self, gpu_id: int) -> None:
        from sglang.srt.model_executor.cuda_graph_runner import CudaGraphRunner

        runner = self._runner
        started, before_gb = time.perf_counter(), get_available_gpu_memory(runner.device, gpu_id)
        saved = runner.spec_algorithm, runner.init_new_workspace, runner.attn_backend, runner.graph_runner
        try:
            # Without an algorithm the graph runner captures DECODE, one token a request, no spec_info.
            runner.spec_algorithm = SpeculativeAlgorithm.NONE
            runner.attn_backend = runner._get_attention_backend(init_new_workspace=True)
            options: dict[str, Any] = {}
            if "attn_backend" in inspect.signature(CudaGraphRunner.__init__).parameters:
                options = {
                    "attn_backend": runner.attn_backend,
                    "speculative_num_steps": 0,
                    "speculative_num_draft_tokens": 1,
                }
            self._graphs = CudaGraphRunner(runner, **options)
            self._backend = runner.attn_backend
        finally:
            runner.spec_algorithm, runner.init_new_workspace, runner.attn_backend, runner.graph_runner = saved
        if not self._graphs.capture_forward_mode.is_decode() or self._graphs.num_tokens_per_bs != 1:
            raise RuntimeError("speculative gate: the decode graphs were captured in another mode")
        used_gb = before_gb - get_available_gpu_memory(runner.device, gpu_id)
        logger.info(
            f"Speculative gate: captured plain decode graphs bs={self._graphs.capture_bs} in "
            f"{time.perf_counter() - started:.2f} s. mem usage={used_gb:.2f} GB."
        )

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        runner = self._runner
        saved = runner.attn_backend, runner.graph_runner
        if self._backend is not None:
            runner.attn_backend = self._backend
        runner.graph_runner = self._graphs
        try:
            yield
        finally:
            runner.attn_backend, runner.graph_runner = saved
