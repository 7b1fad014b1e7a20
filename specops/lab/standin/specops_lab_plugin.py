"""SGLang plugin of the lab (entry point group `sglang.srt.plugins`): right lengths for speculation on the CPU.

From 0.5.16 to 0.5.19 the `intel_amx` backend works out the sequence lengths of a speculative batch and then
passes the plain ones on, so verify and draft attend to too short a context. Later releases do not. The two
hooks put the worked-out lengths where the unchanged methods look for them, and do nothing otherwise.
"""

from contextlib import contextmanager

AFFECTED = ("0.5.16", "0.5.17", "0.5.18", "0.5.19")
BACKEND = "sglang.srt.layers.attention.intel_amx_backend.IntelAMXAttnBackend"


@contextmanager
def _lengths(forward_batch, lengths):
    plain, forward_batch.seq_lens = forward_batch.seq_lens, lengths
    try:
        yield
    finally:
        forward_batch.seq_lens = plain


def _around(original, backend, metadata, field, q, k, v, layer, forward_batch, args, kwargs):
    if metadata is None:
        return original(backend, q, k, v, layer, forward_batch, *args, **kwargs)
    with _lengths(forward_batch, metadata[field]):
        return original(backend, q, k, v, layer, forward_batch, *args, **kwargs)


def _extend(original, backend, q, k, v, layer, forward_batch, *args, **kwargs):
    found = backend.extend_metadata
    return _around(original, backend, found, 0, q, k, v, layer, forward_batch, args, kwargs)


def _decode(original, backend, q, k, v, layer, forward_batch, *args, **kwargs):
    found = backend.draft_decode_metadata
    return _around(original, backend, found, 1, q, k, v, layer, forward_batch, args, kwargs)


def register():
    import sglang

    if sglang.__version__ not in AFFECTED:
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(f"{BACKEND}.forward_extend", _extend, HookType.AROUND)
    HookRegistry.register(f"{BACKEND}.forward_decode", _decode, HookType.AROUND)
