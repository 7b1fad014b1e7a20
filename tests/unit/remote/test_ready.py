from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from typing import Any

import pytest

from specops.remote import launch, loads, procs, ready
from specops.remote.api import reduce_info
from specops.remote.compared import find_mismatches
from specops.remote.context import Context, OpFailed

from .servers import await_true, deploying, free_port, launch_spec, serving

CLOCKS = {"progress_s": 60, "cap_s": 120}
CRASH = [
    "[2026-11-30 05:00:00 TP1] Load weight begin. avail mem=10.00 GB",
    "[2026-11-30 05:00:01 TP1] Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/x/scheduler.py", line 1, in run_scheduler_process',
    "    scheduler.event_loop()",
    "ZeroDivisionError: division by zero",
    "",
    "[2026-11-30 05:00:01] Received sigquit from a child process. It usually means the child failed.",
]


def test_ready_is_a_token_from_our_own_process_with_the_asked_arguments(ctx: Context) -> None:
    port = free_port()
    with deploying(ctx) as (on, seen):
        launch.launch(on, {"launch": launch_spec(port, "--max-running-requests", "10")})
        args = {"port": port, "cookie": "d1", "ready": CLOCKS}
        facts = ready.await_server(on, {**args, "expect": {"max_running_requests": 10, "model_path": "/m"}})
        assert facts["reported"]["max_running_requests"] == 10
        assert any(event.get("milestone") == "warm-up done" for event in seen) or facts["load_s"] >= 0
        with pytest.raises(OpFailed, match="max_running_requests: asked 48, runs with 10") as error:
            ready.await_server(on, {**args, "expect": {"max_running_requests": 48}})
        assert error.value.code == "not_as_asked"
        (load,) = loads.read_loads(on.deploy_dir.parent)
        assert load.load_s == facts["load_s"]
        assert load.marks["warm-up done"] <= load.load_s


def test_a_fatal_line_ends_the_wait_with_its_root_cause(ctx: Context) -> None:
    port = free_port()
    with deploying(ctx) as (on, seen):
        launch.launch(on, {"launch": launch_spec(port, STANDIN_LOG=json.dumps(CRASH), STANDIN_LOAD_S="60")})
        began = time.time()
        with pytest.raises(OpFailed, match="division by zero") as error:
            ready.await_server(on, {"port": port, "cookie": "d1", "ready": CLOCKS})
        assert error.value.code == "server_died"
        (verdict,) = [entry for entry in seen if entry.get("entry") == "verdict"]
        assert verdict["cause"]["id"] == "ZERODIV"
        assert verdict["cause"]["rank"] == "TP1"
        assert began - 1 <= verdict["cause"]["at"] <= time.time()


def test_a_death_without_words_is_told_with_its_exit_code(ctx: Context) -> None:
    port = free_port()
    with deploying(ctx) as (on, seen):
        launch.launch(on, {"launch": launch_spec(port, STANDIN_EXIT="3")})
        with pytest.raises(OpFailed, match="ended with exit code 3"):
            ready.await_server(on, {"port": port, "cookie": "d1", "ready": CLOCKS})
        assert [entry["cause"]["id"] for entry in seen if entry.get("entry") == "verdict"] == ["PROCESS_DIED"]


def test_a_bad_flag_is_named(ctx: Context) -> None:
    port, line = free_port(), "launch_server.py: error: unrecognized arguments: --wrong-flag"
    with deploying(ctx) as (on, _):
        launch.launch(on, {"launch": launch_spec(port, STANDIN_EXIT="2", STANDIN_LOG=json.dumps([line]))})
        with pytest.raises(OpFailed, match="--wrong-flag"):
            ready.await_server(on, {"port": port, "cookie": "d1", "ready": CLOCKS})


def test_a_gate_that_switches_itself_off_fails_only_where_one_was_asked_for(ctx: Context) -> None:
    line = "[t] speculative_adaptive disabled: topk=4. Falling back to static speculative params."
    for gate in ("none", "native"):
        port = free_port()
        with deploying(replace(ctx, deploy_id=f"d-{gate}")) as (on, _):
            spec = launch_spec(port, cookie=f"d-{gate}", STANDIN_LOG=json.dumps([line]))
            launch.launch(on, {"launch": spec})
            args = {"port": port, "cookie": f"d-{gate}", "ready": CLOCKS, "gate": gate}
            if gate == "none":
                ready.await_server(on, args)
                continue
            with pytest.raises(OpFailed, match="native gate off"):
                ready.await_server(on, args)


def test_a_strangers_server_on_the_port_is_not_ours(tmp_path: object, ctx: Context) -> None:
    port = free_port()
    with deploying(ctx) as (on, _):
        note = launch.launch(on, {"launch": launch_spec(port, STANDIN_LOAD_S="60")})
        with serving(ctx.deploy_dir) as other:
            clocks = {"progress_s": 1.5, "cap_s": 30}
            wait = ready.Wait(ctx=on, note=note, port=other.port, clocks=clocks, expect={})
            with pytest.raises(OpFailed, match="is held by pid") as error:
                wait.run()
        assert error.value.code == "no_progress"


def test_our_own_questions_in_its_log_are_no_progress(ctx: Context) -> None:
    """A server that hangs at its warm-up goes on to log each request that it refuses."""
    port = free_port()
    with deploying(ctx) as (on, _):
        launch.launch(on, {"launch": launch_spec(port, STANDIN_NO_TOKEN="1", STANDIN_ACCESS="1")})
        clocks = {"progress_s": 4, "cap_s": 40}
        with pytest.raises(OpFailed, match="no progress for 4 s"):
            ready.await_server(on, {"port": port, "cookie": "d1", "ready": clocks})
        assert (on.deploy_dir / "server.log").read_text().count("HTTP/1.1") >= 2


def test_a_hang_is_told_by_its_clock_and_named(ctx: Context) -> None:
    port = free_port()
    with deploying(ctx) as (on, seen):
        facts = launch.launch(on, {"launch": launch_spec(port, STANDIN_LOAD_S="60")})
        await_true(lambda: procs.children_of(facts["pid"]))
        os.kill(facts["pid"], signal.SIGSTOP)
        with pytest.raises(OpFailed, match="is stopped \\(SIGSTOP\\)") as error:
            ready.await_server(on, {"port": port, "cookie": "d1", "ready": {"progress_s": 1, "cap_s": 30}})
        assert error.value.code == "no_progress"
        assert [entry["cause"]["id"] for entry in seen if entry.get("entry") == "verdict"] == ["NO_PROGRESS"]


def test_an_abort_ends_the_wait(ctx: Context) -> None:
    port = free_port()
    with deploying(replace(ctx, aborted=lambda: "asked to")) as (on, _):
        launch.launch(on, {"launch": launch_spec(port, STANDIN_LOAD_S="60")})
        with pytest.raises(OpFailed, match="asked to") as error:
            ready.await_server(on, {"port": port, "cookie": "d1", "ready": CLOCKS})
        assert error.value.code == "aborted"


def test_reports_are_compared_tolerantly_but_not_blindly(tmp_path: object) -> None:
    reported = {
        "model_path": "/etc/../etc",
        "mem_fraction_static": 0.30,
        "speculative_algorithm": "SpeculativeAlgorithm.EAGLE3",
        "enable_metrics": True,
        "cuda_graph_bs": [1, 2, 5],
    }
    good = {
        "model_path": "/etc",
        "mem_fraction_static": "0.3",
        "speculative_algorithm": "eagle3",
        "enable_metrics": True,
        "cuda_graph_bs": [1, 2, 5],
        "draft": None,
    }
    assert find_mismatches(good, reported) == []
    assert find_mismatches({"tp_size": 8}, reported) == ["tp_size: asked 8, not reported"]
    assert len(find_mismatches({"cuda_graph_bs": [1, 2], "enable_metrics": False}, reported)) == 2
    assert "api_key" not in reduce_info({"api_key": "sk-1", "port": 1})


@pytest.mark.parametrize(
    ("expect", "found", "passes"),
    [
        ({"speculative_algorithm": "NEXTN"}, "EAGLE", True),
        ({"speculative_algorithm": "EAGLE3"}, "EAGLE", False),
        ({"speculative_algorithm": "EAGLE"}, "FROZEN_KV_MTP", True),
        (
            {"speculative_num_draft_tokens": 8, "speculative_num_steps": 3, "speculative_eagle_topk": 1},
            4,
            True,
        ),
        (
            {"speculative_num_draft_tokens": 8, "speculative_num_steps": 3, "speculative_eagle_topk": 2},
            4,
            False,
        ),
        ({"speculative_adaptive": True}, False, False),
        ({"mem_fraction_static": 0.8}, 0.68, True),
        ({"mem_fraction_static": 0.8}, 0.7, False),
        ({"quantization": "unquant"}, None, True),
        ({"quantization": "fp8"}, None, False),
        ({"kv_cache_dtype": "auto"}, "fp8_e4m3", True),
        ({"kv_cache_dtype": "fp8_e5m2"}, "auto", False),
        ({"model_path": "org/model"}, "/cache/org/model/snapshots/1", True),
        ({"model_path": "org/model"}, "org/other", False),
        ({"max_running_requests": 64}, 48, False),
    ],
)
def test_only_what_sglang_rewrites_may_differ(expect: dict[str, Any], found: Any, passes: bool) -> None:
    (name, *others) = expect
    reported = {"version": "0.5.18", name: found, **{other: expect[other] for other in others}}
    reported = {key: value for key, value in reported.items() if value is not None}
    wrong = find_mismatches(expect, reported)
    assert (wrong == []) == passes
    assert passes or wrong[0].startswith(f"{name}: asked ")


def test_a_rewrite_is_of_its_releases() -> None:
    for release, passes in (("0.5.10", False), ("0.5.11", True), ("0.6.0", True)):
        assert (find_mismatches({"quantization": "unquant"}, {"version": release}) == []) == passes
    # its name only sounds like a secret
    assert reduce_info({"speculative_num_draft_tokens": 4}) == {
        "speculative_num_draft_tokens": 4,
        "internal": {},
    }
