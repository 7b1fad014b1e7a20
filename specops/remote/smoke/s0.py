"""S0: by the server's own report, can the boundary be crossed at all?"""

from __future__ import annotations

from typing import Any

from .bench import Bench
from .observe import Sample
from .s6 import read_load
from .verdict import Verdict, failed, inconclusive, passed

Json = Any


async def check(bench: Bench) -> Verdict:
    sample = await bench.observer.look()
    info, spec = bench.observer.info, bench.spec
    if not info:
        path = bench.signals.info_path
        return inconclusive(f"{spec.url}{path} gives no server info")
    capacity = read_capacity(bench)
    evidence: dict[str, Json] = {
        "version": info.get("version"),
        "max_running": capacity,
        "threshold": spec.threshold,
        "gate": spec.gate,
        "state": sample.state,
        "decode_log_interval": info.get("decode_log_interval"),
        "graph_sizes": captured(info),
        "running": sample.running,
        "log_read": bench.observer.log_read,
    }
    if spec.gated:
        if capacity is None:
            return inconclusive("the server does not say how many requests it runs at once", **evidence)
        if capacity < spec.threshold + 5:
            return failed(
                f"it runs at most {capacity} requests at once; the proof needs {spec.threshold + 5} "
                "(SGLang caps at 48 with speculation unless --max-running-requests is set)",
                **evidence,
            )
        wrong = gate_problem(bench, sample.state)
        if wrong is not None:
            return Verdict(wrong.verdict, wrong.summary, evidence)
    foreign = await count_foreign(bench, sample)
    if foreign and not spec.shared:
        return inconclusive(
            f"foreign traffic: {foreign} requests that are not ours run or wait here (--shared goes on)",
            **evidence,
        )
    return passed(f"admits {capacity}, gate {spec.gate}, T={spec.threshold}", **evidence)


async def count_foreign(bench: Bench, sample: Sample) -> int:
    """Requests that run or wait while none of ours does. Gauges are refreshed at decode log lines and keep
    the last batch of a load that is long over, so the live page is asked first."""
    load = await read_load(bench)
    if load is not None:
        return int(max(load["running"], load["waiting"]))
    return (sample.running or 0) + (sample.queue or 0)


def read_capacity(bench: Bench) -> int | None:
    internal, info = bench.observer.internal, bench.observer.info
    for value in (internal.get("effective_max_running_requests_per_dp"), info.get("max_running_requests")):
        if isinstance(value, int) and value > 0:
            return value
    return None


def gate_problem(bench: Bench, state: str | None) -> Verdict | None:
    info, spec = bench.observer.info, bench.spec
    if not info.get("speculative_algorithm"):
        return failed("the server runs without speculation")
    if spec.gate == "batch-gate":
        gate = bench.observer.internal.get("speculative_gate")
        if not isinstance(gate, dict):
            return failed("the server reports no speculative_gate: the patch is not active")
        if gate.get("threshold") != spec.threshold:
            return failed(f"the gate's threshold is {gate.get('threshold')}, not {spec.threshold}")
        return None
    if not info.get("speculative_adaptive"):
        return failed("the native gate is not active: the server reports speculative_adaptive off")
    sizes = captured(info)
    if sizes is not None and spec.threshold not in sizes:
        return failed(
            f"T={spec.threshold} is no captured graph size, so the native gate closes at another batch"
        )
    if state is None:
        return inconclusive("the server does not report its draft steps (speculative_num_steps)")
    return None


def captured(info: dict[str, Json]) -> list[int] | None:
    """Captured decode sizes; None where graphs are off or not reported."""
    if info.get("disable_cuda_graph"):
        return None
    config = info.get("cuda_graph_config")
    decode = config.get("decode") if isinstance(config, dict) else None
    if isinstance(decode, dict):
        sizes = None if decode.get("backend") in (None, "disabled") else decode.get("bs")
    else:
        sizes = info.get("cuda_graph_bs_decode") or info.get("cuda_graph_bs")
    return [int(size) for size in sizes] if isinstance(sizes, list) else None
