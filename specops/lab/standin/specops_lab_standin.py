"""SGLang plugin of the lab (entry point group `sglang.srt.plugins`): gives the CPU attention the lengths it worked out.

The `intel_amx` backend of 0.5.16 to 0.5.19 computes how long each row of a speculative batch is and then
reads `forward_batch.seq_lens` again, so drafts and their verification see too short a context. The hooks
lend the batch the computed lengths for the length of the call; elsewhere they change nothing.
"""

AFFECTED = ("0.5.16", "0.5.17", "0.5.18", "0.5.19")
BACKEND = "sglang.srt.layers.attention.intel_amx_backend.IntelAMXAttnBackend"


def lending(metadata_name, lengths_at):
    """A hook around a forward method; the lengths are item `lengths_at` of the backend's metadata, if it has any."""

    def around(original, backend, q, k, v, layer, forward_batch, *args, **kwargs):
        metadata = getattr(backend, metadata_name)
        if metadata is None:
            return original(backend, q, k, v, layer, forward_batch, *args, **kwargs)
        own = forward_batch.seq_lens
        forward_batch.seq_lens = metadata[lengths_at]
        try:
            return original(backend, q, k, v, layer, forward_batch, *args, **kwargs)
        finally:
            forward_batch.seq_lens = own

    return around


def register():
    import sglang

    if sglang.__version__ not in AFFECTED:
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(f"{BACKEND}.forward_extend", lending("extend_metadata", 0), HookType.AROUND)
    HookRegistry.register(f"{BACKEND}.forward_decode", lending("draft_decode_metadata", 1), HookType.AROUND)
