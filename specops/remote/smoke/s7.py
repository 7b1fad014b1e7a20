"""S7: the same words. Greedy answers in a crowd and across a crossing, against each prompt alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from statistics import median
from typing import Any

from .bench import Bench
from .load import Stream
from .verdict import Judged, Verdict, failed, inconclusive, passed

Json = Any
PROMPTS = 8
TOKENS = 96
BEFORE_TOKENS = 24
JOIN_TOKENS = 64
CROSSED_TOKENS = 256
"""Of those that are there before the others join: a fast server writes many until it has heard of them."""
RUN = 24
"""The same token so often in a row is garbage, unless the prompt alone gives it too."""


async def check(bench: Bench) -> Verdict:
    prompts = [bench.prompt() for _ in range(PROMPTS)]
    size = max(PROMPTS, bench.spec.threshold + 5)
    held = (await bench.hold("S7", [TOKENS] * size, prompts)).streams
    if bench.spec.gated and crossing(held, bench.spec.threshold) is None:
        return inconclusive(f"in a crowd: no {bench.spec.threshold + 1} of {size} requests ran at once")
    crowd = held[:PROMPTS]
    crossed, offsets = await cross(bench, prompts)
    alone = [
        (await bench.hold("S7", [max(TOKENS, stream.asked)], [stream.prompt])).streams[0]
        for stream in crossed
    ]
    if any(not stream.ids for stream in [*crowd, *crossed, *alone]):
        return inconclusive("this server streams no output_ids, so its words cannot be compared")
    for name, streams, starts in (
        ("in a crowd", crowd, [0] * PROMPTS),
        ("across a crossing", crossed, offsets),
    ):
        verdict = compare(bench, streams, alone, starts)
        if verdict.verdict != "pass":
            return Verdict(verdict.verdict, f"{name}, {verdict.summary}", verdict.evidence)
    words = "whole answers equal" if bench.spec.exact_outputs else "no garbage, common beginnings long enough"
    return passed(f"{PROMPTS} prompts in a crowd and across a crossing: {words}")


async def cross(bench: Bench, prompts: Sequence[str]) -> tuple[list[Stream], list[int]]:
    """Some of the prompts first, the others join above T. (streams, tokens at the crossing).

    Raises Judged (inconclusive) if the first had ended, or nearly, before the batch was above T.
    """
    threshold = bench.spec.threshold
    first = max(1, min(threshold, PROMPTS // 2))
    before = len(bench.observer.bad_lines)
    whole = CROSSED_TOKENS * bench.stretch
    pairs = [bench.client.start(prompt, whole) for prompt in prompts[:first]]
    await bench.client.until([stream for stream, _ in pairs], BEFORE_TOKENS)
    pairs += [bench.client.start(prompt, JOIN_TOKENS) for prompt in prompts[first:]]
    fill = max(0, threshold + 1 - PROMPTS)
    extra = [bench.client.start(bench.prompt(), JOIN_TOKENS) for _ in range(fill)]
    await bench.client.wait(task for _, task in [*pairs, *extra])
    streams = [stream for stream, _ in pairs]
    everybody = [*streams, *(stream for stream, _ in extra)]
    bench.mark("S7", streams)
    bench.require_answers(everybody, before)
    at = crossing(everybody, threshold) if bench.spec.gated else streams[0].started
    offsets = [tokens_at(stream, at or stream.moved) for stream in streams[:first]]
    if max(offsets) > whole - JOIN_TOKENS:
        raise Judged(
            inconclusive(
                f"across a crossing: the batch was above {threshold} only when one of the first {first} "
                f"had written {max(offsets)} of {whole} tokens"
            )
        )
    return streams, offsets + [0] * (PROMPTS - first)


def crossing(streams: Sequence[Stream], threshold: int) -> float | None:
    """When more than `threshold` of these first ran at once, by their own tokens; None if they never did."""
    for at in sorted(stream.chunks[0].at for stream in streams if stream.chunks):
        if sum(bool(s.chunks) and s.chunks[0].at <= at <= s.moved for s in streams) > threshold:
            return at
    return None


def tokens_at(stream: Stream, at: float) -> int:
    return max((chunk.tokens for chunk in stream.chunks if chunk.at <= at), default=0)


def compare(
    bench: Bench, streams: Sequence[Stream], alone: Sequence[Stream], starts: Sequence[int]
) -> Verdict:
    """`starts`: tokens before the crossing, which say nothing about what came after."""
    common, lengths = [], []
    for stream, reference in zip(streams, alone, strict=True):
        if len(stream.ids) != stream.asked:
            return failed(f"an answer holds {len(stream.ids)} tokens of {stream.asked}")
        bad = garbage(stream, reference)
        if bad:
            return failed(bad, prompt=stream.prompt[:120], text=stream.text[:400])
        lengths.append(min(len(stream.ids), len(reference.ids)))
        common.append(common_prefix(stream.ids, reference.ids))
    evidence: dict[str, Json] = {"common": common, "length": lengths, "crossing": list(starts)}
    short = [index for index, (got, whole) in enumerate(zip(common, lengths, strict=True)) if got < whole]
    if bench.spec.exact_outputs:
        if short:
            return failed(
                f"{len(short)} of {len(common)} answers differ, the first at token {common[short[0]]} "
                "(this server is exact: they must not)",
                **evidence,
            )
        return passed("equal", **evidence)
    after = [got - start for got, start in zip(common, starts, strict=True) if got >= start]
    if len(after) < len(common) // 2:
        return inconclusive("most answers differ before the crossing: numerics, not the gate", **evidence)
    floor = bench.spec.prefix_tokens
    if median(after) < floor:
        return failed(f"the median common beginning is {median(after):.0f} tokens, below {floor}", **evidence)
    return passed(f"median common beginning {median(after):.0f} tokens", **evidence)


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def garbage(stream: Stream, reference: Stream) -> str:
    if not stream.text.strip() and reference.text.strip():
        return "an answer is empty"
    if stream.text.count("\ufffd") > reference.text.count("\ufffd") + 2:
        return "an answer holds invalid characters"
    if longest_run(stream.ids) >= RUN > longest_run(reference.ids):
        return f"an answer repeats one token {longest_run(stream.ids)} times"
    return ""


def longest_run(ids: Sequence[int]) -> int:
    return max((len(list(group)) for _, group in groupby(ids)), default=0)
