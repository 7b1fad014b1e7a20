"""The machine and the user that the agent runs as."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Platform:
    machine_id: str
    boot_id: str
    hostname: str
    user: str
    uid: int
    home: str
    python: str
    cores: int
    mem_total: int
    """Bytes."""
    mem_available: int
    """Bytes; what the kernel says can be had without swapping."""
    container: str | None
    systemd: bool = False
    kills_at_logout: bool = False
    """Whether logind ends what this user's sessions leave running."""
    linger: bool = False
    """Whether the user's own systemd stays without a session."""


def parse_platform(raw: dict[str, Any]) -> Platform:
    logout = raw.get("logout") or {}
    return Platform(
        machine_id=str(raw["machine_id"]),
        boot_id=str(raw["boot_id"]),
        hostname=str(raw["hostname"]),
        user=str(raw["user"]),
        uid=int(raw["uid"]),
        home=str(raw["home"]),
        python=str(raw["python"]),
        cores=int(raw.get("cores") or 0),
        mem_total=int(raw.get("mem_total") or 0),
        mem_available=int(raw.get("mem_available") or 0),
        container=raw.get("container"),
        systemd=bool(logout.get("systemd")),
        kills_at_logout=bool(logout.get("kills")),
        linger=bool(logout.get("linger")),
    )
