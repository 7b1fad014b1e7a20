"""The boundary smoke test's specification, from a playbook (ARCHITECTURE, SmokeSpec)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specops.config.playbook import Playbook


def build_smoke(
    playbook: Playbook,
    *,
    port: int,
    gate: str,
    release: str | None,
    max_running: int | None,
    graphs: bool | None,
    log: str | None,
    shared: bool = False,
    url: str | None = None,
    prompts: list[str] | None = None,
) -> dict[str, Any]:
    """`log` is a path on the host, with `{deploy_dir}` allowed; None where the log is not ours to read."""
    smoke = playbook.smoke
    return {
        "url": url or f"http://127.0.0.1:{port}",
        "threshold": playbook.gate.threshold,
        "gate": gate,
        "release": release,
        "num_steps": playbook.draft.num_steps if playbook.draft else 0,
        "topk": playbook.draft.topk if playbook.draft else 1,
        "log": log,
        "checks": list(smoke.checks),
        "max_running": max_running,
        "shared": shared,
        "budget_s": smoke.budget_s,
        "token_gap_s": smoke.token_gap_s,
        "floors": {
            "open": smoke.floors.open,
            "reentry": smoke.floors.reentry,
            "prefix_tokens": smoke.floors.prefix_tokens,
        },
        "exact_outputs": smoke.exact_outputs,
        "on_inconclusive": {
            "boundary": smoke.on_inconclusive.boundary,
            "others": smoke.on_inconclusive.others,
        },
        "prompts": prompts,
        "graphs": graphs,
    }
