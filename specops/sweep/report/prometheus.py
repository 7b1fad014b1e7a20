"""Prometheus: the last run as a text file for node_exporter's textfile collector."""

from __future__ import annotations

import os
from pathlib import Path

from specops.errors import SpecopsError
from specops.sweep.runs import Level, Sweep

GAUGES = (
    ("specops_sweep_throughput_tokens_per_second", "Tokens a second in the steady window.", "throughput"),
    ("specops_sweep_request_tokens_per_second", "Tokens a second of one request, mean.", "per_req"),
    ("specops_sweep_latency_p50_seconds", "Latency of a request, median.", "latency.p50"),
    ("specops_sweep_latency_p99_seconds", "Latency of a request, 99th percentile.", "latency.p99"),
    ("specops_sweep_ttft_p50_seconds", "Time to the first token, median.", "ttft.p50"),
    ("specops_sweep_itl_mean_seconds", "Time between tokens, mean.", "itl.avg"),
    ("specops_sweep_tokens_per_verify", "Tokens a verify step.", "tokens_per_verify"),
    ("specops_sweep_requests_sent_per_second", "Requests sent a second, by rate.", "rate_sent"),
    ("specops_sweep_requests_served_per_second", "Requests served a second, by rate.", "rate_served"),
    ("specops_sweep_gate_open_ratio", "Share of looks at which the gate was open.", "gate.open"),
)


def as_prometheus(sweep: Sweep) -> str:
    """Repeats are averaged; a level with doubts is there and has `specops_sweep_tainted` 1. A load by rate
    has the label `rate` instead of `concurrency`."""
    groups: dict[tuple[str, int | None, float | None], list[Level]] = {}
    for level in sweep.levels:
        at_once = level.at_once if level.rate is None else None
        groups.setdefault((level.arm, at_once, level.rate), []).append(level)
    lines: list[str] = []
    for name, about, figure in GAUGES:
        found = []
        for key, levels in groups.items():
            values = [value for level in levels if (value := level.figure(figure)) is not None]
            if values:
                found.append(f"{name}{{{_labels(sweep, *key)}}} {sum(values) / len(values):.9g}")
        lines += [f"# HELP {name} {about}", f"# TYPE {name} gauge", *found] if found else []
    lines += [
        "# HELP specops_sweep_tainted Whether a measurement is doubtful.",
        "# TYPE specops_sweep_tainted gauge",
    ]
    for key, levels in groups.items():
        lines.append(f"specops_sweep_tainted{{{_labels(sweep, *key)}}} {int(any(x.taints for x in levels))}")
    lines += [
        "# HELP specops_sweep_started_timestamp_seconds When the sweep began.",
        "# TYPE specops_sweep_started_timestamp_seconds gauge",
        f'specops_sweep_started_timestamp_seconds{{host="{_escape(sweep.host)}"}} {sweep.started:.3f}',
    ]
    return "\n".join(lines) + "\n"


def _labels(sweep: Sweep, arm: str, at_once: int | None, rate: float | None) -> str:
    labels = {"host": sweep.host, "arm": arm}
    if at_once is not None:
        labels["concurrency"] = str(at_once)
    if rate is not None:
        labels["rate"] = f"{rate:g}"
    return ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def write_prometheus(sweep: Sweep, path: Path) -> None:
    """Written beside and renamed, since the collector may read at any moment. Raises SpecopsError."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(as_prometheus(sweep), encoding="utf-8")
        beside.chmod(0o644)
        os.replace(beside, path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise SpecopsError(f"{path} cannot be written: {error.strerror}") from error
