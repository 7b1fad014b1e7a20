"""Commands that only read a host: facts, status, history, logs."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from specops.cli.options import AcceptNew, AsJson, DeployId, HostName, InstanceName, InventoryPath
from specops.cli.reach import describe_params, reach, speaking, where

POLL_S = 1.0


def register(app: typer.Typer) -> None:
    for command in (facts, status, history, logs):
        app.command()(command)


def facts(
    host: HostName = None,
    instance: InstanceName = None,
    inventory: InventoryPath = None,
    as_json: AsJson = False,
    accept_new: AcceptNew = False,
) -> None:
    """What is true on a host: install, server, GPUs, state."""
    with reach(where(host, instance, inventory, as_json, accept_new)) as at:
        at.output.show("facts", at.connector.call("facts", at.place.question().as_params(), deadline_s=60))


def status(
    host: HostName = None,
    instance: InstanceName = None,
    inventory: InventoryPath = None,
    as_json: AsJson = False,
    accept_new: AcceptNew = False,
) -> None:
    """The lock, what is in force, how the latest deploy stands."""
    with reach(where(host, instance, inventory, as_json, accept_new)) as at:
        from specops.engine.status import read_status

        at.output.show("status", read_status(at.place, at.connector).as_json())


def history(
    host: HostName = None,
    instance: InstanceName = None,
    inventory: InventoryPath = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="The newest so many.")] = None,
    cached: Annotated[
        bool,
        typer.Option("--cached", help="What this machine remembers, of all hosts or one; no connection."),
    ] = False,
    as_json: AsJson = False,
    accept_new: AcceptNew = False,
) -> None:
    """Every deploy, rollback, smoke test and sweep of an instance, newest first."""
    from specops.engine.records import recall, remember

    if cached:
        with speaking(as_json) as output:
            output.show("records", recall(host, limit))
        return
    with reach(where(host, instance, inventory, as_json, accept_new)) as at:
        found = at.ask("history", **describe_params({"limit": limit}))
        remember(at.place.host, at.place.port, found)
        at.output.show("history", found)


def logs(
    deploy: DeployId = None,
    host: HostName = None,
    instance: InstanceName = None,
    inventory: InventoryPath = None,
    which: Annotated[str, typer.Option("--which", help="server, old-server or agent.")] = "server",
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="The last so many lines.")] = 200,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    as_json: AsJson = False,
    accept_new: AcceptNew = False,
) -> None:
    """The server's log of a deploy, on stdout."""
    with reach(where(host, instance, inventory, as_json, accept_new)) as at:
        params = describe_params({"deploy": deploy, "which": which})
        log = at.ask("logs", lines=lines, **params)
        at.output.show("log", log)
        while follow:
            time.sleep(POLL_S)
            log = at.ask("logs", **{**params, "deploy": log["deploy"]}, offset=log["next_offset"])
            if log["text"]:
                at.output.show("log", {**log, "continued": True})
