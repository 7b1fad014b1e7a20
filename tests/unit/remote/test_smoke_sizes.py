"""Which batches above the threshold are visited."""

from __future__ import annotations

import pytest

from specops.remote.smoke.s3 import sizes_above
from tests.unit.remote.smoke_bench import make_bench


@pytest.mark.parametrize(
    ("drafts", "capacity", "sizes"),
    [
        (4, 16, [6, 10]),
        (6, 16, [6, 10]),
        (8, 16, [6, 10, 8]),
        (16, 16, [6, 10, 16]),
        (16, None, [6, 10, 16]),
        (64, 48, [6, 10]),
    ],
)
def test_as_many_requests_as_draft_tokens_where_the_server_runs_so_many(
    drafts: int, capacity: int | None, sizes: list[int]
) -> None:
    assert sizes_above(5, drafts, capacity) == sizes


def test_a_tree_has_the_draft_tokens_that_the_server_says_and_a_chain_one_more_than_steps() -> None:
    tree, chain = make_bench(num_steps=5, topk=4), make_bench(num_steps=3)
    for bench in (tree, chain):
        bench.observer.info["speculative_num_draft_tokens"] = 16
    assert (tree.draft_tokens, chain.draft_tokens) == (16, 4)
    tree.observer.info.clear()
    assert tree.draft_tokens == 6
