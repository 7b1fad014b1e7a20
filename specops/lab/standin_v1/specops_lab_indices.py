"""SGLang's small index kernels in torch: interpreting them is most of what a step costs on the CPU.

Each takes the kernel's grid and arguments and fills the same tensors. A release whose kernel has other
arguments than these keeps the interpreted one.
"""

import inspect

import torch


class InTorch:
    """Stands for a kernel: `kernel[grid](...)` runs `replacement(grid, ...)`, unless that declines."""

    def __init__(self, kernel, replacement):
        self.kernel, self.replacement = kernel, replacement

    def __getitem__(self, grid):
        def launch(*args, **kwargs):
            if kwargs or not self.replacement(grid, *args):
                self.kernel[grid](*args, **kwargs)

        return launch


def replace(module, name, replacement, arguments):
    """Put the replacement in the module where its kernel has just these arguments."""
    kernel = getattr(module, name, None)
    function = getattr(kernel, "fn", None)
    if function is not None and list(inspect.signature(function).parameters) == arguments.split():
        setattr(module, name, InTorch(kernel, replacement))


def assign_slots(grid, rows, table, starts, ends, slots, _pool_len, _bs_upper):
    at, count = 0, grid[0]
    for row, start, end in zip(rows.tolist()[:count], starts.tolist(), ends.tolist()):
        table[row, start:end] = slots[at : at + end - start].to(table.dtype)
        at += end - start
    return True


def assign_draft_slots(grid, rows, table, lengths, _extend, _pages, slots, *rest):
    topk, steps, page_size = rest[5:8]
    if page_size != 1:
        return False
    width = topk * steps
    for index, (row, length) in enumerate(zip(rows.tolist()[: grid[0]], lengths.tolist())):
        table[row, length : length + width] = slots[index * width : (index + 1) * width].to(table.dtype)
    return True


def list_slots(grid, table, rows, lengths, indptr, starts, out, _stride):
    count = grid[0]
    first = [0] * count if starts is None else starts.tolist()
    for row, length, at, start in zip(rows.tolist()[:count], lengths.tolist(), indptr.tolist(), first):
        out[at : at + length] = table[row, start : start + length].to(out.dtype)
    return True


def list_positions(grid, positions, start_loc, prefixes, lengths, has_prefix):
    at = 0
    before = prefixes.tolist() if has_prefix else [0] * grid[0]
    for index, length in enumerate(lengths.tolist()[: grid[0]]):
        positions[at : at + length] = torch.arange(before[index], before[index] + length)
        start_loc[index] = at
        at += length
    return True


def after_decode(grid, tokens, lengths, accepted, positions, bonus, _bs_upper):
    at = 0
    for index, (length, count) in enumerate(zip(lengths.tolist()[: grid[0]], accepted.tolist())):
        positions[at : at + count] = torch.arange(length - count, length)
        at += count
        bonus[index] = tokens[at - 1]
    return True
