"""Draft trees: building one from the draft's choices and walking it with the target's answers."""

import torch


def _parents(parent_list, selected, topk):
    """Parent node of every tree node of one request; node 0 is the root, -1 is unreachable.

    `selected[j - 1]` is the flat candidate behind node j; candidate c hangs below `parent_list[c // topk]`,
    itself a candidate number, and the first topk candidates hang below the root.
    """
    node_of = {}
    for node, candidate in enumerate(selected, start=1):
        node_of.setdefault(candidate, node)
    parents = [-1]
    for candidate in selected:
        group = candidate // topk
        parents.append(0 if group == 0 else node_of.get(parent_list[group], -1))
    return parents


def build_tree_kernel_efficient(
    parent_list, selected_index, verified_seq_len, tree_mask, positions, retrive_index,
    retrive_next_token, retrive_next_sibling, topk, depth, draft_token_num, tree_mask_mode,
):  # fmt: skip
    n = draft_token_num
    if tree_mask_mode not in (0, 1):
        raise NotImplementedError("the lab's kernels have no bit-packed tree masks")
    lengths, groups, chosen = verified_seq_len.tolist(), parent_list.tolist(), selected_index.tolist()
    retrive_index.copy_(torch.arange(len(lengths) * n).view(len(lengths), n))
    at = 0
    for row, length in enumerate(lengths):
        parents = _parents(groups[row], chosen[row][: n - 1], topk)
        first_child, next_sibling = [-1] * n, [-1] * n
        for node in reversed(range(1, n)):
            if parents[node] >= 0:
                next_sibling[node] = first_child[parents[node]]
                first_child[parents[node]] = node
        visible = torch.eye(n, dtype=torch.bool)
        depths = [0] * n
        for node in range(1, n):
            above = max(parents[node], 0)
            visible[node] |= visible[above]
            depths[node] = depths[above] + 1
        retrive_next_token[row] = torch.tensor(first_child)
        retrive_next_sibling[row] = torch.tensor(next_sibling)
        positions.view(-1, n)[row] = torch.tensor(depths) + length
        width = n if tree_mask_mode == 1 else length + n
        tree_mask[at : at + n * width].view(n, width)[:, width - n :] = visible
        at += n * width


def verify_tree_greedy(
    predicts, accept_index, accept_token_num, candidates, retrive_index, retrive_next_token,
    retrive_next_sibling, target_predict,
):  # fmt: skip
    """Follow, from the root, the child that holds the target's own choice, as deep as there is one."""
    answers = target_predict.flatten().tolist()
    rows = zip(
        candidates.tolist(), retrive_index.tolist(), retrive_next_token.tolist(),
        retrive_next_sibling.tolist(), strict=True,
    )  # fmt: skip
    for row, (tokens, flat, child, sibling) in enumerate(rows):
        node, path = 0, [0]
        while len(path) < accept_index.shape[1]:
            want, node = answers[flat[path[-1]]], child[node]
            while node != -1 and tokens[node] != want:
                node = sibling[node]
            if node == -1:
                break
            path.append(node)
        for depth, step in enumerate(path):
            accept_index[row, depth] = flat[step]
            predicts[flat[step]] = answers[flat[step]]
        accept_token_num[row] = len(path) - 1
