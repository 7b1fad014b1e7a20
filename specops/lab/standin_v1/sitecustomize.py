"""Lets an SGLang release before 0.5.16 speculate on a CPU; loaded by Python itself from PYTHONPATH.

No SGLang file is edited: modules are adjusted right after they are imported. Only `sglang.srt.speculative`
believes that it is on CUDA (so that it imports the kernels of this folder); the rest sees a CPU.
LAB_FORWARDS=<file> counts, apart from anything inside SGLang, every model forward: a line
`role mode batch` each, where role is target or draft.
LAB_STALE_DRAFT=1 takes the catch-up out of a batch-gate: the control that must lose acceptance.
"""

import importlib.abc
import importlib.machinery
import inspect
import os
import sys
import types

AFTER = {}


def after(module):
    def keep(function):
        AFTER.setdefault(module, []).append(function)
        return function

    return keep


class _AfterImport:
    """Finds the modules of AFTER as usual and runs their adjustments once they are executed."""

    def find_spec(self, name, path=None, target=None):
        if name not in AFTER:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                for adjust in AFTER[name]:
                    adjust(module)

            spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, _AfterImport())

VLLM_LAYERS, VLLM_OPS = "vllm.model_executor.layers", "vllm._custom_ops"


class _OwnLayers(importlib.abc.Loader):
    """Up to 0.5.7 a CPU without AMX takes two layers from vLLM; here it gets SGLang's own, in torch.

    It also asks for vLLM's rotary kernel when it works in float32, and never calls it on a CPU.
    """

    def find_spec(self, name, path=None, target=None):
        names = ("vllm", "vllm.model_executor", VLLM_LAYERS)
        if name in names or name in (VLLM_OPS, f"{VLLM_LAYERS}.activation", f"{VLLM_LAYERS}.layernorm"):
            return importlib.machinery.ModuleSpec(name, self, is_package=name in names)
        return None

    def create_module(self, spec):
        return types.ModuleType(spec.name)

    def exec_module(self, module):
        if module.__name__ == VLLM_OPS:
            module.rotary_embedding = None
            return
        own = sys.modules.get("sglang.srt.layers." + module.__name__.rpartition(".")[2])
        if own is not None:  # it is at its last lines, and everything of it is there
            vars(module).update({name: value for name, value in vars(own).items() if name[0] != "_"})


sys.meta_path.append(_OwnLayers())


@after("sglang.srt.utils.common")
def speculation_believes_in_cuda(module):
    real = module.is_cuda

    def is_cuda():
        caller = sys._getframe(1).f_globals.get("__name__", "")
        return caller.startswith("sglang.srt.speculative.") or real()

    module.is_cuda = is_cuda


class _TorchHere:
    """torch, but what is asked for on "cuda" is made on the CPU."""

    def __getattr__(self, name):
        import torch

        return getattr(torch, name)

    def arange(self, *args, device=None, **kwargs):
        import torch

        return torch.arange(*args, device="cpu" if device == "cuda" else device, **kwargs)


@after("sglang.srt.speculative.spec_utils")
def trees_are_where_their_tokens_are(module):
    # Up to 0.5.5.post2 the device of a tree is named in words.
    module.torch = _TorchHere()


@after("torch.cuda")
def nothing_to_wait_for(module):
    module.synchronize = lambda *_args, **_kwargs: None


@after("sglang.srt.layers.torchao_utils")
def nothing_is_quantized(module):
    # Up to 0.5.8 it asks for torchao whether or not there is anything to do.
    module.apply_torchao_config_to_model = lambda model, *_args, **_kwargs: model


@after("sglang.srt.managers.overlap_utils")
def tensors_have_no_streams(module):
    import torch

    torch.Tensor.record_stream = lambda self, stream: None


def _by_name(original, replacement):
    """Call `replacement` with one dict of the original's arguments: their order differs between releases."""
    signature = inspect.signature(original)

    def call(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        names = {"sinks": None, "logit_cap": 0.0, "sliding_window_size": -1, "skip_prefix_custom_mask": True}
        replacement({**names, **bound.arguments})

    return call


@after("sglang.srt.layers.attention.triton_ops.decode_attention")
def decode_in_torch(module):
    from sgl_kernel import attention

    module.decode_attention_fwd = _by_name(module.decode_attention_fwd, attention.decode)


@after("sglang.srt.layers.attention.triton_ops.extend_attention")
def extend_in_torch(module):
    from sgl_kernel import attention

    module.extend_attention_fwd = _by_name(module.extend_attention_fwd, attention.extend)


class _DraftIndices:
    """KV slots that each draft step of each branch reads: the prefix, then its own earlier steps."""

    def __getitem__(self, grid):
        steps, rows, topk = grid

        def launch(pool_rows, table, lengths, out, indptr, positions, _pool_len, *rest):
            if rest[-1] != 1 and topk != 1:
                raise NotImplementedError("the lab drafts trees with page size 1 only")
            before = [0, *positions[: rows * topk].cumsum(0).tolist()]
            for step in range(steps):
                at = 0
                for length, pool_row in zip(lengths.tolist(), pool_rows.tolist(), strict=True):
                    slots = table[pool_row]
                    for branch in range(topk):
                        own = length + branch * steps
                        out[step, at : at + length] = slots[:length]
                        at += length
                        out[step, at : at + step + 1] = slots[own : own + step + 1]
                        at += step + 1
                for branch in range(1, rows * topk + 1):
                    indptr[step, branch] = before[branch] + branch * (step + 1)

        return launch


@after("sglang.srt.speculative.spec_utils")
def draft_indices_in_torch(module):
    import specops_lab_indices as ours

    module.generate_draft_decode_kv_indices = _DraftIndices()
    ours.replace(
        module,
        "assign_req_to_token_pool",
        ours.assign_slots,
        "req_pool_indices req_to_token start_offset end_offset out_cache_loc pool_len bs_upper",
    )
    ours.replace(
        module,
        "assign_draft_cache_locs",
        ours.assign_draft_slots,
        "req_pool_indices req_to_token seq_lens extend_lens num_new_pages_per_topk out_cache_loc "
        "source_cache_loc target_cache_loc last_page_lens_cumsum duplicate_cache_len pool_len topk "
        "speculative_num_steps page_size bs_upper iter_upper",
    )
    ours.replace(
        module,
        "create_extend_after_decode_spec_info",
        ours.after_decode,
        "accept_tokens seq_lens accept_lens positions bonus_tokens_ptr bs_upper",
    )


@after("sglang.srt.layers.attention.utils")
def slot_lists_in_torch(module):
    import specops_lab_indices as ours

    ours.replace(
        module,
        "create_flashinfer_kv_indices_triton",
        ours.list_slots,
        "req_to_token_ptr req_pool_indices_ptr page_kernel_lens_ptr kv_indptr kv_start_idx kv_indices_ptr "
        "req_to_token_ptr_stride",
    )


@after("sglang.srt.model_executor.forward_batch_info")
def positions_in_torch(module):
    import specops_lab_indices as ours

    ours.replace(
        module,
        "compute_position_kernel",
        ours.list_positions,
        "positions extend_start_loc extend_prefix_lens extend_seq_lens has_prefix",
    )


@after("sglang.srt.constrained.xgrammar_backend")
def grammar_masks_on_cpu(module):
    import xgrammar

    def apply(logits, vocab_mask):
        scores = logits.float()
        xgrammar.apply_token_bitmask_inplace(scores, vocab_mask.cpu())
        logits.copy_(scores)

    for value in list(vars(module).values()):
        if not isinstance(value, type) or value.__module__ != module.__name__:
            continue
        found = vars(value).get("apply_vocab_mask")
        if isinstance(found, staticmethod):
            value.apply_vocab_mask = staticmethod(apply)
        elif found is not None:
            value.apply_vocab_mask = lambda self, logits, vocab_mask: apply(logits, vocab_mask)


@after("sglang.srt.model_executor.model_runner")
def count_forwards(module):
    if "LAB_FORWARDS" not in os.environ:
        return
    forward = module.ModelRunner.forward
    lines = open(os.environ["LAB_FORWARDS"], "a", buffering=1)  # closed with the process

    def counted(self, forward_batch, *args, **kwargs):
        role = "draft" if self.is_draft_worker else "target"
        lines.write(f"{role} {forward_batch.forward_mode.name} {forward_batch.batch_size}\n")
        return forward(self, forward_batch, *args, **kwargs)

    module.ModelRunner.forward = counted


@after("sglang.srt.speculative.batch_gate_catch_up")
def leave_draft_stale(module):
    if "LAB_STALE_DRAFT" in os.environ:
        module.CatchUp.run = lambda self, batch, reqs, info: (0, 0)
