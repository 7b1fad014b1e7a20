"""Draft trees: node 0 of a row is its last verified token, the others are drafts in order of selection."""

import torch

FULL_MASK, NEW_TOKENS_MASK = 0, 1


def link(parents):
    """First child and next sibling of every node, -1 for none, from each node's parent (-1: not in the tree)."""
    child, sibling = [-1] * len(parents), [-1] * len(parents)
    for node in range(len(parents) - 1, 0, -1):
        parent = parents[node]
        if parent >= 0:
            sibling[node], child[parent] = child[parent], node
    return child, sibling


def find_parents(parent_list, selected, topk, nodes):
    """Parent of every node. Draft j hangs on entry selected[j-1] // topk of parent_list; entry 0 is the root."""
    node_of = {}
    for index, candidate in enumerate(selected[: nodes - 1]):
        node_of.setdefault(candidate, index + 1)
    parents = [-1] * nodes
    for node in range(1, nodes):
        entry = selected[node - 1] // topk
        parents[node] = 0 if entry == 0 else node_of.get(parent_list[entry], -1)
    return parents


def build_tree_kernel_efficient_cpu(
    parent_list, selected_index, lengths, tree_mask, positions, retrive_index,
    retrive_next_token, retrive_next_sibling, topk, _depth, draft_token_num, tree_mask_mode,
):  # fmt: skip
    """Fill links, positions and the ancestors' mask of every row's tree."""
    if tree_mask_mode not in (FULL_MASK, NEW_TOKENS_MASK):
        raise ValueError("the lab's trees have no bit-packed mask")
    nodes, at = draft_token_num, 0
    known, chosen = parent_list.tolist(), selected_index.tolist()
    for row, length in enumerate(lengths.tolist()):
        parents = find_parents(known[row], chosen[row], topk, nodes)
        mask = torch.eye(nodes, dtype=torch.bool)
        mask[:, 0] = True
        depth = [0] * nodes
        for node in range(1, nodes):
            depth[node] = 1
            if parents[node] > 0:
                # A parent was selected before its children, so its own line is complete.
                mask[node] |= mask[parents[node]]
                depth[node] += depth[parents[node]]
        child, sibling = link(parents)
        here = slice(row * nodes, (row + 1) * nodes)
        retrive_index.view(-1)[here] = torch.arange(here.start, here.stop)
        retrive_next_token.view(-1)[here] = torch.tensor(child)
        retrive_next_sibling.view(-1)[here] = torch.tensor(sibling)
        positions.view(-1)[here] = torch.tensor(depth) + length
        width = nodes if tree_mask_mode == NEW_TOKENS_MASK else length + nodes
        tree_mask[at : at + nodes * width].view(nodes, width)[:, -nodes:] = mask
        at += nodes * width


def verify_tree_greedy_cpu(
    predicts, accept_index, accept_token_num, candidates, retrive_index,
    retrive_next_token, retrive_next_sibling, target_predict,
):  # fmt: skip
    """Walk down each tree while a child is what the target says; accept_token_num does not count the root."""
    drafts, places = candidates.tolist(), retrive_index.tolist()
    children, siblings = retrive_next_token.tolist(), retrive_next_sibling.tolist()
    wanted = target_predict.flatten().tolist()
    deepest = accept_index.shape[1]
    for row, tokens in enumerate(drafts):
        node, accepted = 0, [places[row][0]]
        while len(accepted) < deepest:
            node = children[row][node]
            while node >= 0 and tokens[node] != wanted[accepted[-1]]:
                node = siblings[row][node]
            if node < 0:
                break
            accepted.append(places[row][node])
        for place in accepted:
            predicts[place] = wanted[place]
        accept_index[row, : len(accepted)] = torch.tensor(accepted)
        accept_token_num[row] = len(accepted) - 1


def reconstruct_indices_from_tree_mask(
    tree_mask, lengths, positions, retrive_index, retrive_next_token,
    retrive_next_sibling, batch_size, draft_token_num,
):  # fmt: skip
    """The same links and positions from the new tokens' masks alone (n-gram drafts)."""
    nodes = draft_token_num
    masks = tree_mask.view(batch_size, nodes, nodes).tolist()
    for row, length in enumerate(lengths.tolist()):
        ancestors = [[other for other in range(node) if masks[row][node][other]] for node in range(nodes)]
        child, sibling = link([line[-1] if line else -1 for line in ancestors])
        here = slice(row * nodes, (row + 1) * nodes)
        retrive_index.view(-1)[here] = torch.arange(here.start, here.stop)
        retrive_next_token.view(-1)[here] = torch.tensor(child)
        retrive_next_sibling.view(-1)[here] = torch.tensor(sibling)
        positions.view(-1)[here] = torch.tensor([len(line) for line in ancestors]) + length
