"""Plain-torch replacement of the CPU build of `sgl_kernel`, which no package index has.

Holds what SGLang's `intel_amx` attention backend and its CPU branches for speculation call, from 0.5.16 on.
The functions write into the tensors they are given, as the compiled ones do. `convert_weight_packed` is left
out: without it SGLang finds no AMX and does linear layers, norms and rotary embeddings itself.
"""

import torch

from sgl_kernel.attention import decode_attention_cpu, extend_attention_cpu
from sgl_kernel.cache import (  # noqa: F401
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    copy_all_layer_kv_cache_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
)
from sgl_kernel.tree import (  # noqa: F401
    build_tree_kernel_efficient_cpu,
    reconstruct_indices_from_tree_mask,
    verify_tree_greedy_cpu,
)

__version__ = "0.0.0+lab"

# SGLang looks these two up as operators; plain attributes of the namespace do.
torch.ops.sgl_kernel.decode_attention_cpu = decode_attention_cpu
torch.ops.sgl_kernel.extend_attention_cpu = extend_attention_cpu


def segment_packbits(*_args, **_kwargs):
    """Imported at start-up by the grammar-aware drafts, called on a GPU only."""
    raise NotImplementedError("the lab's sgl_kernel has no segment_packbits: it needs a GPU")
