"""Commands about who holds an instance, and about what a failure left behind."""

from __future__ import annotations

from typing import Annotated

import typer

from specops.cli.options import AcceptNew, AsJson, DeployId, HostName, InstanceName, InventoryPath
from specops.cli.reach import reach, where

app = typer.Typer(help="Who holds an instance.", no_args_is_help=True, rich_markup_mode=None)
evidence_app = typer.Typer(
    help="What a failed deploy left to look at.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("show")
def show_lock(
    host: HostName = None,
    instance: InstanceName = None,
    inventory: InventoryPath = None,
    as_json: AsJson = False,
    accept_new: AcceptNew = False,
) -> None:
    """Say who holds the lock, where, since when and why."""
    with reach(where(host, instance, inventory, as_json, accept_new)) as at:
        from specops.engine.read import lock

        at.output.show("lock", lock(at.place, at.connector))


@app.command("break")
def break_lock(
    reason: Annotated[str, typer.Option("--reason", help="Kept in the journal.")],
    host: HostName = None,
    instance: InstanceName = None,
    inventory: InventoryPath = None,
    force: Annotated[bool, typer.Option("--force", help="Kill the holder; its guardian settles.")] = False,
    as_json: AsJson = False,
    accept_new: AcceptNew = False,
) -> None:
    """Tell the holder to end and to take back what it did."""
    with reach(where(host, instance, inventory, as_json, accept_new)) as at:
        from specops.engine.deploy import break_lock as engine_break

        at.output.show("broken", engine_break(at.place, at.connector, reason, force=force))


@evidence_app.command("show")
def show_evidence(
    deploy: DeployId = None,
    host: HostName = None,
    instance: InstanceName = None,
    inventory: InventoryPath = None,
    as_json: AsJson = False,
    accept_new: AcceptNew = False,
) -> None:
    """Show the evidence of a deploy: cause, log, ranks, processes, ports, versions."""
    with reach(where(host, instance, inventory, as_json, accept_new)) as at:
        from specops.engine.evidence import describe_bundle
        from specops.engine.read import evidence

        at.output.show("evidence", describe_bundle(*evidence(at.place, at.connector, deploy)))


@evidence_app.command("fetch")
def fetch_evidence(
    deploy: DeployId = None,
    host: HostName = None,
    instance: InstanceName = None,
    inventory: InventoryPath = None,
    into: Annotated[str, typer.Option("--into", help="A folder here.")] = ".",
    as_json: AsJson = False,
    accept_new: AcceptNew = False,
) -> None:
    """Copy the evidence of a deploy to this machine, as <deploy>.tar.gz."""
    with reach(where(host, instance, inventory, as_json, accept_new)) as at:
        from pathlib import Path

        from specops.cli.files import keep_bundle
        from specops.engine.evidence import describe_bundle
        from specops.engine.read import evidence

        found, data = evidence(at.place, at.connector, deploy)
        path = Path(into).expanduser() / f"{found}.tar.gz"
        keep_bundle(data, path)
        at.output.show("evidence", {**describe_bundle(found, data), "kept in": str(path)})
