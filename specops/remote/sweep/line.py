"""The one line that a level is told in: the format that dashboards and scripts already read."""

from __future__ import annotations

from typing import Any

Json = Any


def format_level(event: dict[str, Json]) -> str:
    latency = event["latency"]
    times = f"{latency['avg']:6.1f}/{latency['p50']:6.1f}/{latency['p99']:6.1f}s"
    head = f"C={event['C']:3d}" if event.get("rate") is None else f"R={event['rate']:g}/s"
    return (
        f"{head} | {event['requests']:d} requests | throughput: {event['throughput']:7.1f} tok/s"
        f" | per-req: {event['per_req']:6.1f} tok/s | latency avg/p50/p99: {times}"
        f" | ok: {event['ok']}/{event['requests']}"
    )
