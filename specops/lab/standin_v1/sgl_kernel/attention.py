"""The two attention kernels of SGLang's Triton backend in torch: the Triton interpreter needs seconds for them."""

import torch


def _scores(query, keys, scale, logit_cap):
    """query [.., t, h, d], keys [.., s, k, d] -> [.., k, h // k, t, s] in float32."""
    heads, groups = query.shape[-2], keys.shape[-2]
    grouped = query.float().unflatten(-2, (groups, heads // groups))
    scores = torch.einsum("...tkgd,...skd->...kgts", grouped, keys.float()) * scale
    return logit_cap * torch.tanh(scores / logit_cap) if logit_cap and logit_cap > 0 else scores


def _mix(scores, values, visible):
    """Softmax over the visible keys (`visible` broadcasts to [.., t, s]) times values -> [.., t, h, d]."""
    weights = torch.softmax(scores.masked_fill(~visible, float("-inf")), dim=-1)
    return torch.einsum("...kgts,...skd->...tkgd", weights, values.float()).flatten(-3, -2)


def decode(a):
    """One query a row; row i reads kv_indices[kv_indptr[i]:kv_indptr[i + 1]]."""
    query = a["q"]
    rows = query.shape[0]
    start = a["kv_indptr"][: rows + 1].long()
    lengths = start[1:] - start[:-1]
    column = torch.arange(int(lengths.max()))
    visible = column < lengths[:, None]
    at = (start[:-1, None] + column).clamp(max=a["kv_indices"].numel() - 1)
    slots = a["kv_indices"].long()[at].masked_fill(~visible, 0)
    scores = _scores(query.unsqueeze(1), a["k_buffer"][slots], a["sm_scale"], a["logit_cap"])
    out = _mix(scores, a["v_buffer"][slots], visible[:, None, None, None, :])
    a["o"].copy_(out.squeeze(1))


def _extend_mask(a, row, new, prefix):
    mask = torch.ones(new, prefix + new, dtype=torch.bool)
    if a["custom_mask"] is not None:
        first = int(a["mask_indptr"][row])
        tree = a["custom_mask"][first : first + new * (prefix + new)].view(new, prefix + new).bool()
        mask[:, prefix:] = tree[:, prefix:]
        if not a["skip_prefix_custom_mask"]:
            mask[:, :prefix] = tree[:, :prefix]
    elif a["is_causal"]:
        mask[:, prefix:] = mask[:, prefix:].tril()
    return mask


def extend(a):
    """New tokens of a row see its cached prefix and each other, by the causal or the tree's mask."""
    if (a["sliding_window_size"] or -1) > 0 or a["sinks"] is not None:
        raise NotImplementedError("the lab's extend attention has no sliding window and no sinks")
    new_at, cached_at = a["qo_indptr"].tolist(), a["kv_indptr"].tolist()
    for row in range(len(new_at) - 1):
        first, last = new_at[row], new_at[row + 1]
        if first == last:
            continue
        slots = a["kv_indices"][cached_at[row] : cached_at[row + 1]].long()
        keys = torch.cat([a["k_buffer"][slots], a["k_extend"][first:last].to(a["k_buffer"].dtype)])
        values = torch.cat([a["v_buffer"][slots], a["v_extend"][first:last].to(a["v_buffer"].dtype)])
        scale = a["sm_scale"] or a["q_extend"].shape[-1] ** -0.5
        scores = _scores(a["q_extend"][first:last], keys, scale, a["logit_cap"])
        a["o_extend"][first:last] = _mix(scores, values, _extend_mask(a, row, last - first, slots.numel()))
