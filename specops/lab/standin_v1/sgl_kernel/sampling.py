"""Sampling pieces: top-k, renormalised probabilities, and tree sampling against the target."""

import torch


def fast_topk(values, topk, dim=-1):
    return torch.topk(values, topk, dim=dim)


def _column(value, like):
    column = value if torch.is_tensor(value) else torch.full((like.shape[0],), value)
    return column.reshape(-1, 1)


def top_k_renorm_prob(probs, top_k):
    """Keep each row's k largest (ties with the k-th stay in) and rescale the row to 1."""
    k = _column(top_k, probs).long().clamp(1, probs.shape[1])
    ordered = probs.sort(dim=-1, descending=True).values
    kept = probs * (probs >= ordered.gather(1, k - 1))
    return kept / kept.sum(-1, keepdim=True)


def top_p_renorm_prob(probs, top_p):
    """Keep each row's smallest leading set whose mass reaches p and rescale the row to 1."""
    ordered, order = probs.sort(dim=-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    kept = torch.zeros_like(probs).scatter(1, order, ordered * (before < _column(top_p, probs)))
    return kept / kept.sum(-1, keepdim=True)


def tree_speculative_sampling_target_only(
    predicts, accept_index, accept_token_num, candidates, retrive_index, retrive_next_token,
    retrive_next_sibling, uniform_samples, uniform_samples_for_final_sampling, target_probs,
    draft_probs, threshold_single=1.0, threshold_acc=1.0, deterministic=True,
):  # fmt: skip
    """At each node, walk the children while one coin exceeds their summed target probability.

    A child is taken when the sum reaches the coin; if none is, the next token is drawn from the node's
    distribution without the children that were turned down.
    """
    for row in range(candidates.shape[0]):
        tokens, flat = candidates[row].tolist(), retrive_index[row].tolist()
        child, sibling = retrive_next_token[row].tolist(), retrive_next_sibling[row].tolist()
        coins, probs = uniform_samples[row].tolist(), target_probs[row]
        node, coin, taken, refused = 0, coins[0], 0, []
        accept_index[row, 0] = flat[0]
        while taken + 1 < accept_index.shape[1]:
            mass, refused, step = 0.0, [], child[node]
            while step != -1:
                p = float(probs[node, tokens[step]])
                mass += p
                if coin <= mass / threshold_acc or p >= threshold_single:
                    break
                refused.append(tokens[step])
                step = sibling[step]
            if step == -1:
                break
            predicts[flat[node]] = tokens[step]
            taken += 1
            accept_index[row, taken] = flat[step]
            node, coin, refused = step, coins[step], []
        left = probs[node].clone()
        left[refused] = 0
        if float(left.sum()) <= 0:
            left = probs[node]
        total = left.cumsum(-1)
        draw = float(uniform_samples_for_final_sampling[row]) * float(total[-1])
        pick = int(torch.searchsorted(total, torch.tensor(draw, dtype=total.dtype)))
        predicts[flat[node]] = min(pick, left.numel() - 1)
        accept_token_num[row] = taken
