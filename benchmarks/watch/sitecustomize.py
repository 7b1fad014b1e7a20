"""Watches a lab server of 0.5.16 or later from outside of the gate; loaded by Python itself from PYTHONPATH.

No SGLang file is edited: modules are adjusted right after they are imported.
LAB_FORWARDS=<file> counts every model forward: a line `role mode batch` each, role is target or draft.
LAB_STALE_DRAFT=1 takes the catch-up out of a batch-gate: the control that must lose acceptance.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

Adjust = Callable[[Any], None]


def without_streams(module: Any) -> None:
    import torch

    # Overlap scheduling runs on the CPU but for this call, which torch refuses there.
    torch.Tensor.record_stream = lambda self, stream: None


def count_forwards(module: Any) -> None:
    if "LAB_FORWARDS" not in os.environ:
        return
    forward = module.ModelRunner.forward
    lines = open(os.environ["LAB_FORWARDS"], "a", buffering=1)  # noqa: SIM115 (closed with the process)

    def counted(self: Any, forward_batch: Any, *args: Any, **kwargs: Any) -> Any:
        role = "draft" if self.is_draft_worker else "target"
        lines.write(f"{role} {forward_batch.forward_mode.name} {forward_batch.batch_size}\n")
        return forward(self, forward_batch, *args, **kwargs)

    module.ModelRunner.forward = counted


def leave_draft_stale(module: Any) -> None:
    if "LAB_STALE_DRAFT" in os.environ:
        module.CatchUp.run = lambda self, batch, reqs, info: (0, 0)


AFTER: dict[str, Adjust] = {
    "sglang.srt.managers.overlap_utils": without_streams,
    "sglang.srt.model_executor.model_runner": count_forwards,
    "sglang.srt.speculative.batch_gate_catch_up": leave_draft_stale,
}


class AfterImport:
    """Finds the modules of AFTER as usual and adjusts them once they are executed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in AFTER:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                AFTER[name](module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, AfterImport())
