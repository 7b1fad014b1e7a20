"""Commands that change a host: plan (what would be), deploy, rollback, recover, attach, abort, clean."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specops.cli.options import (
    AcceptNew,
    AcceptNoRestore,
    AcceptUnproven,
    AsJson,
    DeployId,
    GateKind,
    HostName,
    InstanceName,
    InventoryPath,
    PatchFolders,
    PatchIds,
    PlaybookName,
    PromptsFile,
    Settings,
    Threshold,
    Yes,
)
from specops.cli.reach import Reach, describe_params, list_overrides, reach, reach_with_playbook, where

if TYPE_CHECKING:
    from specops.engine.outcome import Outcome

DECLINED = 130
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")]
WithSweep = Annotated[bool, typer.Option("--sweep", help="Measure levels after the smoke test has passed.")]
Levels = Annotated[str | None, typer.Option("--levels", help="Concurrent requests: 1,2,5,10.")]


def register(app: typer.Typer) -> None:
    for command in (plan, deploy, rollback, attach, recover, abort, clean):
        app.command()(command)


def plan(
    host: HostName = None,
    instance: InstanceName = None,
    inventory: InventoryPath = None,
    playbook: PlaybookName = None,
    settings: Settings = None,
    threshold: Threshold = None,
    gate: GateKind = None,
    patch: PatchIds = None,
    patches: PatchFolders = None,
    sweep: WithSweep = False,
    levels: Levels = None,
    prompts: PromptsFile = None,
    accept_unproven: AcceptUnproven = False,
    accept_no_restore: AcceptNoRestore = False,
    as_json: AsJson = False,
    accept_new: AcceptNew = False,
) -> Any:
    """What a deploy would do: `deploy --dry-run`."""
    return deploy(
        host=host,
        instance=instance,
        inventory=inventory,
        playbook=playbook,
        settings=settings,
        threshold=threshold,
        gate=gate,
        patch=patch,
        patches=patches,
        sweep=sweep,
        levels=levels,
        prompts=prompts,
        accept_unproven=accept_unproven,
        accept_no_restore=accept_no_restore,
        dry_run=True,
        as_json=as_json,
        accept_new=accept_new,
    )


def deploy(
    host: HostName = None,
    instance: InstanceName = None,
    inventory: InventoryPath = None,
    playbook: PlaybookName = None,
    settings: Settings = None,
    threshold: Threshold = None,
    gate: GateKind = None,
    patch: PatchIds = None,
    patches: PatchFolders = None,
    sweep: WithSweep = False,
    levels: Levels = None,
    prompts: PromptsFile = None,
    accept_unproven: AcceptUnproven = False,
    accept_no_restore: AcceptNoRestore = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
    accept_new: AcceptNew = False,
) -> Any:
    """Patch, restart, prove both sides; or put everything back."""
    asked = where(host, instance, inventory, as_json, accept_new)
    overrides = list_overrides(settings, threshold=threshold, gate=gate)
    with reach_with_playbook(asked, playbook, overrides) as at:
        from specops.cli.wishes import make_wish
        from specops.engine.planner import Nothing, make_plan

        wish = make_wish(
            at.need_playbook(),
            ids=patch,
            folders=patches,
            sweep=sweep,
            levels=levels,
            prompts=prompts,
            accept_unproven=accept_unproven,
            accept_no_restore=accept_no_restore,
        )
        made = make_plan(at.place, wish, at.connector)
        if isinstance(made, Nothing):
            return unchanged(at, made)
        outcome = show_and_run(at, made, dry_run=dry_run, yes=yes)
        if not sweep or not _is_proven(outcome):
            return outcome
        from specops.cli.measure import sweep_deployed

        sweep_deployed(at, levels=levels, threshold=threshold, prompts=prompts)
        return outcome


def rollback(
    host: HostName = None,
    instance: InstanceName = None,
    inventory: InventoryPath = None,
    playbook: PlaybookName = None,
    to: Annotated[str | None, typer.Option("--to", help="The deploy to go back to.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace files that were changed since; their bytes are kept.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
    accept_new: AcceptNew = False,
) -> Any:
    """Take back the deploy in force; start what served before it."""
    asked = where(host, instance, inventory, as_json, accept_new)
    with reach_with_playbook(asked, playbook, ()) as at:
        from specops.engine.rollback import make_rollback
        from specops.steps.server import Clocks

        book = at.need_playbook()
        made = make_rollback(
            at.place,
            at.connector,
            to=to,
            force=force,
            clocks=Clocks(progress_s=book.ready.progress_s, cap_s=book.ready.cap_s),
            drain_s=book.stop.drain_s,
            term_s=book.stop.term_s,
        )
        return show_and_run(at, made, dry_run=dry_run, yes=yes)


def attach(
    deploy: DeployId = None,
    host: HostName = None,
    instance: InstanceName = None,
    inventory: InventoryPath = None,
    as_json: AsJson = False,
    accept_new: AcceptNew = False,
) -> Any:
    """Follow a deploy from its first event to its end."""
    with reach(where(host, instance, inventory, as_json, accept_new)) as at:
        from specops.cli.follow import Follower

        return _told(at, Follower(at).attach(deploy))


def recover(
    host: HostName = None,
    instance: InstanceName = None,
    inventory: InventoryPath = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Put back files that somebody changed meanwhile; their bytes are kept."),
    ] = False,
    as_json: AsJson = False,
    accept_new: AcceptNew = False,
) -> Any:
    """End a deploy that never ended, by its own journal."""
    with reach(where(host, instance, inventory, as_json, accept_new)) as at:
        from specops.cli.follow import Follower
        from specops.engine.outcome import Unchanged

        outcome = Follower(at).recover(force=force)
        if isinstance(outcome, Unchanged):
            at.output.note(outcome.serving)
            return 0
        return _told(at, outcome)


def abort(
    host: HostName = None,
    instance: InstanceName = None,
    inventory: InventoryPath = None,
    reason: Annotated[str, typer.Option("--reason", help="Kept in the journal.")] = "asked for",
    as_json: AsJson = False,
    accept_new: AcceptNew = False,
) -> Any:
    """Stop the running deploy: it takes back what it did."""
    with reach(where(host, instance, inventory, as_json, accept_new)) as at:
        from specops.cli.follow import Follower
        from specops.engine.deploy import abort as engine_abort

        told = engine_abort(at.place, at.connector, reason)
        return _told(at, Follower(at).attach(told["deploy"]))


def clean(
    host: HostName = None,
    instance: InstanceName = None,
    inventory: InventoryPath = None,
    keep: Annotated[int | None, typer.Option("--keep", min=0, help="Newest deploys that stay.")] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    accept_new: AcceptNew = False,
) -> None:
    """Remove old logs and backups; what a rollback needs stays."""
    with reach(where(host, instance, inventory, as_json, accept_new)) as at:
        at.show("clean", "clean", dry_run=dry_run, **describe_params({"keep": keep}))


def show_and_run(at: Reach, made: Any, *, dry_run: bool, yes: bool) -> Any:
    """`made` is an engine.plan.Plan. Asks before a server is stopped."""
    from specops.cli.follow import Follower
    from specops.connect.withhold import WithholdingConnector
    from specops.ui.ask import confirm

    at.output.show("plan", made.as_json())
    stops = made.outage.replaces
    if dry_run:
        at = replace(at, connector=WithholdingConnector(at.connector))
    elif stops and not confirm(f"Stop {stops} on {at.place.host}?", assume_yes=yes):
        at.output.note("nothing was changed")
        return DECLINED
    return _told(at, Follower(at).run(made))


def unchanged(at: Reach, made: Any) -> Any:
    from specops.engine.outcome import Unchanged
    from specops.engine.words import describe

    serving = describe(made.facts.server) or "nothing is serving"
    return _told(at, Unchanged(serving=serving))


def _told(at: Reach, outcome: Outcome) -> Outcome:
    """The outcome is the last word; the evidence of a failure comes here before it."""
    from specops.cli.files import fetch_evidence
    from specops.engine.outcome import RollbackFailed, RolledBack

    if isinstance(outcome, (RolledBack, RollbackFailed)):
        fetch_evidence(at, outcome.deploy)
    at.output.outcome(outcome)
    return outcome


def _is_proven(outcome: Any) -> bool:
    """Deployed, and no check of its smoke test was left open."""
    from specops.engine.outcome import Deployed

    return isinstance(outcome, Deployed) and not outcome.inconclusive
