"""Attention over the paged KV cache: rows of a batch are padded to one length and done in one go.

Shapes: t tokens, h query heads, g KV heads, d head width, b rows of the batch, n new tokens and s keys of a row.
"""

import torch

PADDED_LIMIT = 1 << 22
"""Scores that one padded call may hold; beyond it (long prompts of unlike lengths) rows are done one by one."""


def attend(query, keys, values, scale, logit_cap, visible, sinks):
    """query [b, n, h, d], keys and values [b, s, g, d], visible [b, n, s] -> [b, n, h, d] in float32.

    A query that sees nothing (padding) gives NaN; the caller drops it.
    """
    rows, new, heads, width = query.shape
    groups = keys.shape[2]
    shared = heads // groups
    q = query.float().reshape(rows, new, groups, shared, width).permute(0, 2, 3, 1, 4).flatten(2, 3)
    scores = torch.matmul(q * scale, keys.float().permute(0, 2, 3, 1)).unflatten(2, (shared, new))
    if logit_cap and logit_cap > 0:
        scores = logit_cap * torch.tanh(scores / logit_cap)
    scores = scores.masked_fill(~visible[:, None, None], float("-inf"))
    if sinks is not None:
        sink = sinks.float().view(1, groups, shared, 1, 1).expand(rows, -1, -1, new, 1)
        weights = torch.cat((scores, sink), dim=-1).softmax(dim=-1)[..., :-1]
    else:
        weights = scores.softmax(dim=-1)
    mixed = torch.matmul(weights.flatten(2, 3), values.float().transpose(1, 2))
    return mixed.unflatten(2, (shared, new)).permute(0, 3, 1, 2, 4).reshape(rows, new, heads, -1)


def drop_scales(rest, plain_length):
    """Releases from 0.5.20 on put two KV scales in front; the lab's cache is never quantised."""
    if len(rest) == plain_length:
        return rest
    if rest[0] != 1.0 or rest[1] != 1.0:
        raise NotImplementedError("the lab's attention has no quantised KV cache")
    return rest[2:]


def decode_attention_cpu(query, k_cache, v_cache, *rest):
    """One new token a row: store its key and value at `loc`, attend to the row's first seq_len slots."""
    (
        output, key, value, loc, _scratch, req_to_token, rows, lengths,
        scale, logit_cap, _cross, window, _encoder_lens, sinks,
    ) = drop_scales(rest, 14)  # fmt: skip
    if key is not None and value is not None:
        k_cache[loc] = key.reshape(-1, *k_cache.shape[1:]).to(k_cache.dtype)
        v_cache[loc] = value.reshape(-1, *v_cache.shape[1:]).to(v_cache.dtype)
    longest = int(lengths.max())
    position = torch.arange(longest)
    visible = position < lengths[:, None]
    if window > 0:
        visible &= position >= lengths[:, None] - window
    # Past a row's end its table holds whatever was there before, which the mask hides: never an index out of range.
    slots = req_to_token[rows, :longest].long().masked_fill(position >= lengths[:, None], 0)
    mixed = attend(
        query.unsqueeze(1), k_cache[slots], v_cache[slots], scale, logit_cap, visible.unsqueeze(1), sinks
    )
    output.copy_(mixed.squeeze(1))


def extend_attention_cpu(query, k_new, v_new, output, k_cache, v_cache, *rest):
    """`extend_lens` new tokens a row see the row's earlier slots and each other, causally or by the tree's mask."""
    if len(rest) == 16:
        if not rest[-1]:
            raise NotImplementedError("the lab's extend attention is causal only")
        rest = rest[:-1]
    (
        req_to_token, rows, lengths, extend_lens, extend_start, _longest_extend,
        scale, logit_cap, _cross, window, _encoder_lens, sinks, tree_mask,
    ) = drop_scales(rest, 13)  # fmt: skip
    cache = (k_cache, v_cache, req_to_token)
    totals, news, starts = lengths.tolist(), extend_lens.tolist(), extend_start.tolist()
    masks = split_tree_mask(tree_mask, totals, news)
    spans = [
        (row, total, new, start, mask)
        for row, total, new, start, mask in zip(rows.tolist(), totals, news, starts, masks)
        if new
    ]
    for together in group_spans(spans):
        keys, values, visible, queries = gather(together, cache, query, k_new, v_new, window)
        mixed = attend(queries, keys, values, scale, logit_cap, visible, sinks).to(output.dtype)
        for index, (_row, _total, new, start, _mask) in enumerate(together):
            output[start : start + new] = mixed[index]


def group_spans(spans):
    """All rows at once where they extend by the same few tokens, as in a verification; otherwise one by one."""
    if not spans:
        return []
    longest = max(span[1] for span in spans)
    same = len({span[2] for span in spans}) == 1
    if same and len(spans) * spans[0][2] * longest <= PADDED_LIMIT:
        return [spans]
    return [[span] for span in spans]


def gather(spans, cache, query, k_new, v_new, window):
    """Keys, values [b, s, g, d], visibility [b, n, s] and queries [b, n, h, d] of rows that all extend by n."""
    k_cache, v_cache, req_to_token = cache
    new, longest = spans[0][2], max(span[1] for span in spans)
    totals = torch.tensor([span[1] for span in spans])
    position = torch.arange(longest)
    table = req_to_token[torch.tensor([span[0] for span in spans]), :longest].long()
    slots = table.masked_fill(position >= totals[:, None], 0)
    keys, values = k_cache[slots], v_cache[slots]
    newest = torch.tensor([span[3] for span in spans])[:, None] + torch.arange(new)
    place = (totals - new)[:, None] + torch.arange(new)
    if k_new is not None:
        index = torch.arange(len(spans))[:, None]
        keys[index, place] = k_new.reshape(-1, *keys.shape[2:])[newest].to(keys.dtype)
        values[index, place] = v_new.reshape(-1, *values.shape[2:])[newest].to(values.dtype)
    visible = position <= place[..., None]
    if window > 0:
        visible &= position > place[..., None] - window
    for index, (_row, total, _new, _start, mask) in enumerate(spans):
        if mask is not None:
            visible[index] = False
            visible[index, :, : total - new] = mask[:, : total - new] if mask.shape[1] == total else True
            visible[index, :, total - new : total] = mask[:, -new:]
    return keys, values, visible, query[newest]


def split_tree_mask(tree_mask, totals, news):
    """Each row's mask, [n, s] or only the new tokens' [n, n], from the flat one; None where there is none."""
    if tree_mask is None:
        return [None] * len(news)
    new_only = tree_mask.numel() == sum(new * new for new in news)
    widths = news if new_only else totals
    masks, at = [], 0
    for new, width in zip(news, widths):
        masks.append(tree_mask[at : at + new * width].view(new, width).bool())
        at += new * width
    return masks
