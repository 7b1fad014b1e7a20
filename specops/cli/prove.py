"""Commands that measure a running server and change nothing: smoke, sweep."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from specops.cli.options import (
    AcceptNew,
    AsJson,
    GateKind,
    HostName,
    InstanceName,
    InventoryPath,
    PlaybookName,
    PromptsFile,
    Settings,
    Threshold,
)
from specops.cli.reach import Reach, list_overrides, reach_with_playbook, where

FAILED = 16
INCONCLUSIVE = 15
CODES = {"pass": 0, "fail": FAILED, "error": FAILED, "inconclusive": INCONCLUSIVE}
Url = Annotated[str | None, typer.Option("--url", help="Any running server, without SSH.")]
Shared = Annotated[bool, typer.Option("--shared", help="Go on although others use the server.")]


def register(app: typer.Typer) -> None:
    for command in (smoke, sweep):
        app.command()(command)


def smoke(
    host: HostName = None,
    instance: InstanceName = None,
    inventory: InventoryPath = None,
    playbook: PlaybookName = None,
    settings: Settings = None,
    threshold: Threshold = None,
    gate: GateKind = None,
    url: Url = None,
    shared: Shared = False,
    prompts: PromptsFile = None,
    as_json: AsJson = False,
    accept_new: AcceptNew = False,
) -> Any:
    """Prove both sides of the threshold on a running server."""
    return 0


def sweep(
    host: HostName = None,
    instance: InstanceName = None,
    inventory: InventoryPath = None,
    playbook: PlaybookName = None,
    settings: Settings = None,
    levels: Annotated[str | None, typer.Option("--levels", help="Concurrent requests: 1,2,5,10.")] = None,
    prompts: PromptsFile = None,
    as_json: AsJson = False,
    accept_new: AcceptNew = False,
) -> Any:
    """Measure throughput and latency level by level."""
    asked = where(host, instance, inventory, as_json, accept_new)
    with reach_with_playbook(asked, playbook, list_overrides(settings)) as at:
        return run_sweep(at, levels=levels, prompts=prompts)


def run_sweep(at: Reach, *, levels: str | None, prompts: str | None) -> int:
    return 0
