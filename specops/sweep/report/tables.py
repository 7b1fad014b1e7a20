"""Tables: a sweep in rows, for people and for other programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from specops.sweep.report.curves import is_closed
from specops.sweep.runs import Level, Sweep, tainted
from specops.sweep.statistics import estimate

Json = Any
FIGURES = (
    "throughput", "per_req", "latency.avg", "latency.p50", "latency.p90", "latency.p99", "ttft.avg",
    "ttft.p50", "ttft.p90", "ttft.p99", "itl.avg", "itl.p50", "itl.p90", "itl.p99",
    "tpot.avg", "tpot.p50", "tpot.p99",
    "rate_sent", "rate_served", "tokens", "prompt_tokens", "tokens_per_verify",
    "window_s", "in_flight", "batch.mean", "gate.open",
    "client.cpu_share", "client.lag_s.p99",
)  # fmt: skip
HEADS = ("arm", "C", "tok/s", "spread", "per request", "latency p50/p99", "TTFT p50/p99", "ITL mean/p99",
         "tok/verify", "gate", "batch", "n", "doubts")  # fmt: skip


def as_csv(sweep: Sweep) -> str:
    """One row a measurement; seconds, tokens and requests a second; an empty cell was not measured. Of a load
    by rate C is the most that were let in."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["host", "arm", "C", "rate", "repeat", "requests", "ok", *FIGURES, "taints"])
    for level in sweep.levels:
        cells = [level.figure(name) for name in FIGURES]
        writer.writerow(
            [
                sweep.host, level.arm, level.at_once, "" if level.rate is None else level.rate, level.repeat,
                level.raw.get("requests"), level.raw.get("ok"),
                *("" if cell is None else f"{cell:.6g}" for cell in cells), "; ".join(level.taints),
            ]
        )  # fmt: skip
    return out.getvalue()


def as_rows(sweep: Sweep) -> list[list[str]]:
    """One row an arm and level, as HEADS names them; a load by rate has its rate for its C."""
    rows = []
    for arm in sweep.arms:
        for at_once, levels in sweep.at(arm).items():
            rows.append([arm, str(at_once), *_cells(levels)])
    for arm in sweep.arms:
        for rate, levels in sweep.by_rate(arm).items():
            served = _mean(levels, "rate_served", " ({:.3g} served)")
            rows.append([arm, f"{rate:g}/s{served}", *_cells(levels)])
    return rows


def _cells(levels: Sequence[Level]) -> list[str]:
    found = estimate([level.throughput for level in levels])
    spread = f"{found.lowest:.1f} to {found.highest:.1f}" if found.count > 1 else ""
    return [
        f"{found.mean:.1f}",
        spread,
        _mean(levels, "per_req", "{:.1f}"),
        _pair(levels, "latency.p50", "latency.p99", 1, "{:.2f}", " s"),
        _pair(levels, "ttft.p50", "ttft.p99", 1000, "{:.0f}", " ms"),
        _pair(levels, "itl.avg", "itl.p99", 1000, "{:.1f}", " ms"),
        _mean(levels, "tokens_per_verify", "{:.2f}"),
        gate_word(levels),
        _mean(levels, "batch.median", "{:.0f}"),
        str(found.count),
        "; ".join(tainted(levels)),
    ]


def gate_word(levels: Sequence[Level]) -> str:
    """`open`, `closed`, `open 60 %`; empty where the gate did not say."""
    shares = [share for level in levels if (share := level.figure("gate.open")) is not None]
    if not shares:
        return ""
    share = sum(shares) / len(shares)
    if share in (0.0, 1.0):
        return "closed" if is_closed(levels) else "open"
    return f"open {100 * share:.0f} %"


def _mean(levels: Sequence[Level], figure: str, form: str, scale: float = 1.0) -> str:
    values = [value for level in levels if (value := level.figure(figure)) is not None]
    return form.format(scale * sum(values) / len(values)) if values else ""


def _pair(levels: Sequence[Level], one: str, other: str, scale: float, form: str, unit: str) -> str:
    first, second = _mean(levels, one, form, scale), _mean(levels, other, form, scale)
    return f"{first}/{second}{unit}" if first else ""
