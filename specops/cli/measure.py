"""Commands that measure speed: sweep (levels of one server or of several arms) and tune (which threshold)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specops.cli.options import (
    AcceptNew,
    AsJson,
    HostName,
    InstanceName,
    InventoryPath,
    PatchFolders,
    PlaybookName,
    PromptsFile,
    Settings,
    Threshold,
    Yes,
)
from specops.cli.reach import Reach, list_overrides, reach_with_playbook, speaking, where

if TYPE_CHECKING:
    from specops.cli.measuring import Kept
    from specops.sweep.plan import Measure
    from specops.sweep.runs import Sweep

DECLINED = 130
CLOSER = 3
"""Levels measured again between the two that the crossover lies between."""
LOOKS = 5
"""Most bisections of one load."""
Levels = Annotated[
    str | None, typer.Option("--levels", metavar="N,N", help="Concurrent requests, such as 1,2,5,10.")
]
Rates = Annotated[
    str | None, typer.Option("--rates", metavar="R,R", help="Requests a second, beside or instead of levels.")
]
Repeats = Annotated[int | None, typer.Option("--repeats", min=1, help="Of each level; 3 or more show noise.")]
Window = Annotated[
    float | None, typer.Option("--window", metavar="S", min=0.1, help="Seconds of a steady window a level.")
]
Arms = Annotated[
    str | None,
    typer.Option("--arms", metavar="NAMES", help="no-spec, always-on, gated: a launch each, there and back."),
]
Live = Annotated[
    bool,
    typer.Option("--live", help="Arms by the batch gate's live threshold: always-on, always-off, gated."),
]
Prometheus = Annotated[
    str | None, typer.Option("--prometheus", metavar="FILE", help="Text for node_exporter, after the run.")
]
RollBack = Annotated[bool, typer.Option("--rollback", help="Roll back when the server dies in the sweep.")]


def register(app: typer.Typer) -> None:
    for command in (sweep, tune):
        app.command()(command)


def sweep(
    host: HostName = None,
    instance: InstanceName = None,
    inventory: InventoryPath = None,
    playbook: PlaybookName = None,
    settings: Settings = None,
    threshold: Threshold = None,
    levels: Levels = None,
    rates: Rates = None,
    repeats: Repeats = None,
    window: Window = None,
    arms: Arms = None,
    live: Live = False,
    patches: PatchFolders = None,
    prompts: PromptsFile = None,
    prometheus: Prometheus = None,
    roll_back: RollBack = False,
    yes: Yes = False,
    as_json: AsJson = False,
    accept_new: AcceptNew = False,
) -> int:
    """Smoke first; then throughput and latency by level, of one server or of several arms."""
    asked = where(host, instance, inventory, as_json, accept_new)
    overrides = list_overrides(settings, threshold=threshold)
    with reach_with_playbook(asked, playbook, overrides) as at:
        from specops.cli.measuring import Kept, keep, tell

        measure, kept = _measure(at, levels, rates, repeats, window), Kept()
        if arms and not live:
            if not _launch(at, arms, measure, kept, patches, prompts, yes):
                return DECLINED
        else:
            code = _run_here(at, measure, kept, arms if live else None, threshold, prompts)
            if code is not None:
                return code
        keep(at, kept, prometheus=prometheus)
        code = tell(at, kept)
        if roll_back and kept.cause:
            _roll_back(at)
        return code


def _measure(
    at: Reach, levels: str | None, rates: str | None, repeats: int | None, window: float | None
) -> Measure:
    from specops.cli.wishes import parse_levels
    from specops.sweep.plan import parse_measure

    return parse_measure(
        at.need_playbook(), levels=parse_levels(levels), rates=rates, repeats=repeats, window_s=window
    )


def _launch(
    at: Reach,
    arms: str,
    measure: Measure,
    kept: Kept,
    folders: Sequence[str] | None,
    prompts: str | None,
    yes: bool,
    *,
    closer: bool = False,
) -> bool:
    from specops.cli.arms import Launches
    from specops.sweep.arms import parse_arms

    launches = Launches(at, parse_arms(arms), measure, kept, folders, prompts)
    return launches.run(yes=yes, refine=_closer if closer else None)


def _run_here(
    at: Reach, measure: Measure, kept: Kept, arms: str | None, threshold: str | None, prompts: str | None
) -> int | None:
    """None where it was measured, else the exit code of the smoke test that was not passed."""
    from specops.cli.measuring import AS_IT_IS, measure_running
    from specops.cli.prove import smoke_running
    from specops.sweep.arms import live_arms, parse_arms

    code, gate, t = smoke_running(at, threshold=threshold, prompts=prompts)
    if code:
        return code
    chosen: Sequence[Any] = AS_IT_IS
    if arms:
        _require_live(at, gate)
        chosen = live_arms(parse_arms(arms), t)
    measure_running(
        at,
        measure,
        kept,
        threshold=threshold,
        prompts=prompts,
        arms=chosen,
        how="live" if arms else "as it is",
    )
    return None


def _require_live(at: Reach, gate: str) -> None:
    from specops.errors import Refused

    if gate != "batch-gate":
        raise Refused(
            f"{at.place.host}: arms of one load need the batch gate's live threshold; this gate is {gate}",
            host_state="nothing was changed",
            next_command=f"specops sweep --host {at.place.host} --arms no-spec,always-on,gated",
        )


def sweep_deployed(at: Reach, *, levels: str | None, threshold: str | None, prompts: str | None) -> None:
    """After a deploy that has proven itself: its own smoke test was the one that has to pass first."""
    from specops.cli.measuring import Kept, keep, measure_running, tell

    kept = Kept()
    measure_running(at, _measure(at, levels, None, None, None), kept, threshold=threshold, prompts=prompts)
    keep(at, kept)
    tell(at, kept)


def _roll_back(at: Reach) -> None:
    from specops.cli.follow import Follower
    from specops.engine.rollback import make_rollback
    from specops.steps.server import Clocks

    book = at.need_playbook()
    clocks = Clocks(progress_s=book.ready.progress_s, cap_s=book.ready.cap_s)
    stop = book.stop
    made = make_rollback(
        at.place, at.connector, to=None, clocks=clocks, drain_s=stop.drain_s, term_s=stop.term_s
    )
    at.output.outcome(Follower(at).run(made))


def tune(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN…]", help="Kept sweeps to decide by, without measuring."),
    ] = None,
    host: HostName = None,
    instance: InstanceName = None,
    inventory: InventoryPath = None,
    playbook: PlaybookName = None,
    settings: Settings = None,
    levels: Levels = None,
    repeats: Repeats = None,
    window: Window = None,
    live: Live = False,
    write: Annotated[bool, typer.Option("--write", help="Write T into the playbook; comments stay.")] = False,
    patches: PatchFolders = None,
    prompts: PromptsFile = None,
    yes: Yes = False,
    as_json: AsJson = False,
    accept_new: AcceptNew = False,
) -> int:
    """Find the threshold: up to which batch speculation pays, and how sure that is."""
    if runs:
        with speaking(as_json) as output:
            from specops.sweep.runs import merge, read_sweep

            return _decide(output, merge([read_sweep(run) for run in runs]), write, playbook)
    asked = where(host, instance, inventory, as_json, accept_new)
    with reach_with_playbook(asked, playbook, list_overrides(settings)) as at:
        from specops.cli.measuring import Kept, keep, tell

        measure, kept = _measure(at, levels, None, repeats or 3, window), Kept()
        if live:
            code = _run_here(at, measure, kept, "always-on,always-off", None, prompts)
            if code is not None:
                return code
            _bisect(at, measure, kept, prompts)
        elif not _launch(at, "always-on,no-spec", measure, kept, patches, prompts, yes, closer=True):
            return DECLINED
        keep(at, kept)
        code = tell(at, kept)
        return code or _decide(at.output, kept.sweep(), write, playbook or _named(at, asked), kept.path)


def _named(at: Reach, asked: Any) -> str:
    from specops.config.inventory import load_inventory
    from specops.config.target import resolve_target

    return resolve_target(load_inventory(asked.inventory), asked.host, asked.instance).instance.playbook


def _bisect(at: Reach, measure: Measure, kept: Kept, prompts: str | None) -> None:
    """The middle of the bracket, again and again, on the one load that has both states."""
    from specops.cli.measuring import measure_running
    from specops.sweep.arms import ALWAYS_OFF, ALWAYS_ON, live_arms
    from specops.sweep.crossover import next_level
    from specops.sweep.verdict import decide

    arms = live_arms((ALWAYS_ON, ALWAYS_OFF), 0)
    for _ in range(LOOKS):
        crossover = decide(kept.sweep()) if kept.ended == "finished" else None
        level = next_level(crossover) if crossover else None
        if level is None:
            return
        at.output.note(f"looking closer: C={level}")
        measure_running(at, replace(measure, levels=(level,)), kept, prompts=prompts, arms=arms, how="live")


def _closer(kept: Kept) -> list[int]:
    """Between launches one closer look has to do, at several levels at once."""
    from specops.sweep.crossover import levels_between
    from specops.sweep.verdict import decide

    crossover = decide(kept.sweep())
    return levels_between(crossover, CLOSER) if crossover else []


def _decide(output: Any, sweep: Sweep, write: bool, playbook: str | None, path: str = "") -> int:
    """Tell the verdict and, where asked, write T. Raises UsageError where the arms cannot decide."""
    from specops.errors import UsageError
    from specops.sweep.verdict import decide, gains_of_gate

    crossover = decide(sweep)
    if crossover is None:
        why = f"these arms cannot decide: {', '.join(sweep.arms)}; it takes always-on and a plain one"
        if sweep.levels and all(level.rate is not None for level in sweep.levels):
            why = "these loads are all by rate: T is a number of requests at once (--levels)"
        raise UsageError(
            why,
            next_command="specops tune --host HOST",
        )
    told: dict[str, Any] = {
        "verdict": crossover.sentence(),
        "kind": crossover.kind,
        "threshold": crossover.threshold,
        "interval": [crossover.low, crossover.high],
        "undecided": crossover.undecided,
        "gains": [
            {"C": g.at_once, "gated": g.gated, "measured": g.measured, "over_plain": g.over_plain,
             "over_always_on": g.over_always_on, "claim": g.claim}
            for g in gains_of_gate(sweep, crossover.threshold)
        ],
        "page": str(Path(path).with_suffix(".html")) if path else None,
    }  # fmt: skip
    if write:
        told["written"] = _write(crossover, playbook)
    elif crossover.threshold >= 1 and not crossover.undecided:
        told["next"] = f"specops deploy --threshold {crossover.threshold}"
    output.show("tuned", told)
    return 0


def _write(crossover: Any, playbook: str | None) -> str:
    from specops.config.edit import set_number
    from specops.config.shipped import find_playbook
    from specops.errors import UsageError

    if crossover.undecided or crossover.threshold < 1:
        raise UsageError(f"no threshold to write: {crossover.sentence()}")
    if playbook is None:
        raise UsageError("--write: name the playbook with --playbook")
    path = find_playbook(playbook)
    old = set_number(path, "gate", "threshold", crossover.threshold)
    return f"{path}: gate.threshold {old or 'was not set'} -> {crossover.threshold}"
