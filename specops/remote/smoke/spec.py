"""SmokeSpec: what is tested against, as the controller sends it (ARCHITECTURE, SmokeSpec and its result)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = Any
ORDER = ("S0", "S1", "S3", "S2", "S7", "S4", "S5", "S6")
"""Of a whole run. S3 is the first to cross, so it names what dies there; S4 compares acceptance on words that
S7 has found right; S6 wants what came before it to be over."""
TITLES = {
    "S0": "the server admits what the proof needs",
    "S1": "one request: the gate is open",
    "S2": "at the threshold: the gate is open",
    "S3": "above the threshold: the gate is closed",
    "S4": "re-entry: acceptance comes back",
    "S5": "more crossings, and a flap at the threshold",
    "S6": "quiet again: nothing leaked, S1 as before",
    "S7": "the words are the same as without company",
}


@dataclass(frozen=True)
class Spec:
    url: str
    threshold: int
    gate: str
    """`native`, `batch-gate` or `none`; `auto` where the server is to be asked."""
    release: str
    num_steps: int
    topk: int
    log: str | None
    checks: tuple[str, ...]
    max_running: int | None
    shared: bool
    budget_s: float
    token_gap_s: float
    open_floor: float
    """Tokens a step that count as speculating."""
    reentry_floor: float
    prefix_tokens: int
    exact_outputs: bool
    prompts: tuple[str, ...]
    api_key_env: str | None
    graphs: bool | None
    ask_server: bool
    """What the controller could not know (release, gate, draft, graphs) is taken from the server's report."""
    simulated: bool
    """SGLANG_SIMULATE_ACC_LEN is set: acceptance says nothing."""

    @property
    def longest(self) -> int:
        """The most tokens that one verify can bring."""
        return self.num_steps + 1

    @property
    def gated(self) -> bool:
        return self.gate != "none" and self.num_steps > 0


def parse_spec(raw: dict[str, Json], built_in: tuple[str, ...]) -> Spec:
    """Raises ValueError naming the key."""
    floors = raw.get("floors") or {}
    try:
        spec = Spec(
            url=str(raw["url"]).rstrip("/"),
            threshold=int(raw["threshold"]),
            gate=str(raw["gate"]),
            release=str(raw.get("release") or ""),
            num_steps=int(raw.get("num_steps") or 0),
            topk=int(raw.get("topk") or 1),
            log=raw.get("log"),
            checks=tuple(name for name in ORDER if name in set(raw.get("checks") or ORDER)),
            max_running=raw.get("max_running"),
            shared=bool(raw.get("shared")),
            budget_s=float(raw.get("budget_s") or 180),
            token_gap_s=float(raw.get("token_gap_s") or 60),
            open_floor=float(floors.get("open", 1.2)),
            reentry_floor=float(floors.get("reentry", 0.8)),
            prefix_tokens=int(floors.get("prefix_tokens", 16)),
            exact_outputs=bool(raw.get("exact_outputs")),
            prompts=tuple(raw.get("prompts") or ()) or built_in,
            api_key_env=raw.get("api_key_env"),
            graphs=raw.get("graphs"),
            ask_server=bool(raw.get("ask_server")),
            simulated=bool(raw.get("simulated")),
        )
    except KeyError as error:
        raise ValueError(f"the smoke test's specification has no {error}") from None
    if spec.threshold < 1:
        raise ValueError(f"threshold {spec.threshold}: the boundary test needs at least 1")
    return spec
