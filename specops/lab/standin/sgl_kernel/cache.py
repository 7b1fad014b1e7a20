"""Bookkeeping between requests, their token tables (`req_to_token` [requests, pool_len]) and KV slots."""

import ctypes

import torch


def walk_ranges(rows, starts, ends):
    """(row, start, end, offset of the range in the packed list) for every row of the batch."""
    offset = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist()):
        yield row, start, end, offset
        offset += end - start


def assign_req_to_token_pool_cpu(rows, req_to_token, starts, ends, out_cache_loc, _pool_len):
    """Write packed slots into each row's table at start:end."""
    for row, start, end, offset in walk_ranges(rows, starts, ends):
        req_to_token[row, start:end] = out_cache_loc[offset : offset + end - start].to(req_to_token.dtype)


def assign_extend_cache_locs_cpu(rows, req_to_token, starts, ends, out_cache_loc, _pool_len):
    """Read each row's table at start:end into packed slots."""
    for row, start, end, offset in walk_ranges(rows, starts, ends):
        out_cache_loc[offset : offset + end - start] = req_to_token[row, start:end].to(out_cache_loc.dtype)


def assign_draft_cache_locs_contiguous_cpu(
    rows, req_to_token, lengths, out_cache_loc, _pool_len, topk, num_steps
):
    """The topk * num_steps slots that follow each row's text."""
    ahead = topk * num_steps
    columns = lengths.long()[:, None] + torch.arange(ahead)
    out_cache_loc.view(-1, ahead)[: rows.numel()] = req_to_token[rows.long()[:, None], columns].to(
        out_cache_loc.dtype
    )


def build_draft_decode_metadata_cpu(req_to_token, rows, lengths, topk, num_steps, pool_len):
    """A table for each of the topk branches of each row: the row's text, then the branch's own draft slots."""
    tables = req_to_token[rows.long()].repeat_interleave(topk, dim=0)
    if topk > 1:
        branch = torch.arange(topk).repeat(rows.numel())
        begin = lengths.long().repeat_interleave(topk)[:, None]
        step = torch.arange(num_steps)
        source = begin + branch[:, None] * num_steps + step
        tables.scatter_(1, begin + step, tables.gather(1, source))
    return tables[:, :pool_len]


def fill_bonus_tokens_cpu(accept_tokens, accept_lens, bonus_tokens, stride):
    """The last accepted token of each row; rows lie `stride` apart."""
    count = accept_lens.numel()
    last = torch.arange(count) * stride + accept_lens.long() - 1
    bonus_tokens[:count] = accept_tokens.flatten()[last].to(bonus_tokens.dtype)


def fill_accept_out_cache_loc_cpu(accept_index, out_cache_loc, accept_out_cache_loc, size=None):
    """The slots of the accepted tokens, packed; -1 in `accept_index` stands for none."""
    index = accept_index.flatten()[:size].long()
    kept = out_cache_loc[index[index >= 0]]
    accept_out_cache_loc[: kept.numel()] = kept


def rotate_input_ids_cpu(input_ids, starts, lengths, topk_index, select_index=None):
    """Shift each row's tokens left by one and put its next token at the end, or at `select_index`."""
    following = topk_index.flatten()
    for row, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist())):
        if length < 1:
            continue
        end = start + length
        input_ids[start : end - 1] = input_ids[start + 1 : end].clone()
        input_ids[end - 1 if select_index is None else int(select_index[row])] = following[row]


def copy_all_layer_kv_cache_cpu(data_ptrs, strides, target_slots, source_slots):
    """In every layer's buffer (address, bytes a slot): slot[target] = slot[source], all read before any is written."""
    targets, sources = target_slots.tolist(), source_slots.tolist()
    for base, stride in zip(data_ptrs.tolist(), strides.tolist()):
        held = [ctypes.string_at(base + slot * stride, stride) for slot in sources]
        for slot, content in zip(targets, held):
            ctypes.memmove(base + slot * stride, content, stride)
