"""Tokens a step are read by differences within windows; a busy server's merged chunks are no drafts."""

from __future__ import annotations

from dataclasses import replace

from specops.remote.smoke.judge import judge_closed
from specops.remote.smoke.observe import DecodeLine
from specops.remote.smoke.signals import read_signals, release_key
from specops.remote.smoke.windows import Count, Window, count, cut, hidden_steps, plateau, read_steps
from tests.unit.remote.smoke_bench import START_S, STEP_S, make_bench, make_level, make_stream

NATIVE = read_signals("0.5.18", "native")
ALWAYS = Window(0, START_S * 2)


def test_a_chunk_longer_than_one_verify_is_several_steps() -> None:
    steps = read_steps(make_stream([4, 8, 3, 5]), 4, True)
    assert [(step.tokens, step.steps) for step in steps] == [(4, 1), (8, 2), (3, 1), (5, 2)]
    assert count(steps, ALWAYS) == Count(20, 6)


def test_counts_that_a_release_sends_with_each_chunk_are_the_steps() -> None:
    stream = make_stream([4, 2, 4])
    stream.chunks = [replace(chunk, verifies=n) for chunk, n in zip(stream.chunks, (1, 2, 4, 5), strict=True)]
    assert [step.steps for step in read_steps(stream, 4, True)] == [1, 2, 1]


def test_final_counters_tell_merged_chunks_from_drafts() -> None:
    merged, drafted = make_stream([1, 2, 1, 3, 1], verifies=8), make_stream([1, 2, 1, 3, 1], verifies=5)
    assert hidden_steps(merged, read_steps(merged, 4, True), NATIVE) == 3
    assert hidden_steps(drafted, read_steps(drafted, 4, True), NATIVE) == 0


def test_without_verifies_while_closed_the_accepted_drafts_count() -> None:
    merged = make_stream([4, 4, 2, 3], verifies=2)
    merged.meta["spec_num_correct_drafts"] = 6
    steps = read_steps(merged, 4, False)
    assert hidden_steps(merged, steps, read_signals("0.5.18", "none")) == 3
    assert hidden_steps(merged, steps, read_signals("0.5.5", "none")) is None


def test_windows_lie_where_all_requests_ran() -> None:
    early, late = make_stream([1] * 60), make_stream([1] * 60, start=START_S + 10 * STEP_S)
    steps = [read_steps(stream, 4, True) for stream in (early, late)]
    whole = plateau([early, late], steps, 4)
    assert whole is not None
    assert whole.start == late.chunks[0].at
    assert whole.end < early.moved
    windows = cut(steps, whole, settle=5, span=8, most=9)
    assert len(windows) >= 4
    assert all(count(each, window).steps >= 8 for window in windows for each in steps)
    assert all(whole.start < window.start < window.end <= whole.end for window in windows)


def test_requests_that_never_ran_together_have_no_windows() -> None:
    first, second = make_stream([1] * 20), make_stream([1] * 20, start=START_S + 1)
    steps = [read_steps(stream, 4, True) for stream in (first, second)]
    assert plateau([first, second], steps, 4) is None


def test_the_servers_log_convicts_without_a_window() -> None:
    bench = make_bench()
    level = make_level(bench, [make_stream([4] * 9) for _ in range(6)], state="closed", running=6)
    assert judge_closed(level, [], 2, 6).verdict == "inconclusive"
    bench.observer.decodes += [DecodeLine(START_S + n * STEP_S, 6, 3.9, None, 0) for n in (2, 4)]
    assert judge_closed(level, [], 2, 6).verdict == "fail"


def test_later_releases_add_signals() -> None:
    assert not read_signals("0.5.9", "batch-gate").live_steps
    assert read_signals("0.5.9", "batch-gate").correct_drafts == "spec_accept_token_num"
    assert read_signals("0.5.12", "native").correct_drafts == "spec_num_correct_drafts"
    assert read_signals("", "native") == read_signals("0.5.23", "native")
    assert read_signals("0.5.5", "none").info_path == "/get_server_info"
    assert release_key("0.5.12.post1") > release_key("0.5.12")


def test_the_patched_gate_tells_its_switches_in_the_log_once_for_all_ranks() -> None:
    observer = make_bench(gate="batch-gate", release="0.5.12.post1").observer
    words = "Speculative gate {}: #running-req: 6, threshold: 5, open steps: 38, closed steps: 0"
    for at, tag, state in (
        (1, " TP1", "closed"),
        (1, " TP0", "closed"),
        (2, "", "open"),
        (3, " TP11", "open"),
    ):
        observer.take_line(f"[2026-11-30 09:55:15{tag}] {words.format(state)}", float(at))
    observer.take_line("[2026-11-30 09:55:15] Speculative gate threshold: 5 -> 0", 4.0)
    assert observer.switches == [(1.0, "closed"), (2.0, "open")]
