"""The GPUs of a host, as nvidia-smi reports them; an empty tuple where there are none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    index: int
    name: str
    mem_total: int
    """Bytes."""
    mem_free: int
    """Bytes, before anything that a deploy would stop has let go."""
    mem_held: int = 0
    """Bytes that the server of this instance holds, and gives back when it is stopped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """A process on the GPUs of this instance's server that is not part of it."""

    pid: int
    start_ticks: int
    line: str
    """For people: pid, user, command."""
    bytes: int
    """Of GPU memory; 0 where nobody tells."""
    lost: bool
    """A worker of SGLang whose launcher is gone."""


def parse_holders(raw: Any) -> tuple[Holder, ...]:
    return tuple(
        Holder(
            pid=int(entry["pid"]),
            start_ticks=int(entry["start_ticks"]),
            line=str(entry["line"]),
            bytes=int(entry.get("bytes") or 0),
            lost=bool(entry.get("lost")),
        )
        for entry in raw or ()
    )


def parse_gpus(raw: Any) -> tuple[Gpu, ...]:
    if not isinstance(raw, list):
        return ()
    return tuple(
        Gpu(
            index=int(gpu["index"]),
            name=str(gpu["name"]),
            mem_total=int(gpu["mem_total"]),
            mem_free=int(gpu["mem_free"]),
            mem_held=int(gpu.get("mem_held") or 0),
        )
        for gpu in raw
    )
