"""One measurement of a running server, from the request to the kept file; finished levels are never lost."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specops.cli.reach import Reach
from specops.errors import SpecopsError

if TYPE_CHECKING:
    from specops.sweep.plan import Measure
    from specops.sweep.runs import Sweep

Json = Any
AS_IT_IS = ({"name": "as it is"},)


@dataclass(slots=True)
class Kept:
    """What one or more visits to servers measured, and how it ended."""

    levels: list[dict[str, Json]] = field(default_factory=list)
    about: dict[str, Json] = field(default_factory=dict)
    started: float = field(default_factory=time.time)
    ended: str = "finished"
    cause: Json = None
    path: str = ""

    def as_json(self) -> dict[str, Json]:
        return {
            "format": 1,
            "started": self.started,
            "closed": time.time(),
            "boot_id": self.about.get("boot_id"),
            "about": self.about,
            "levels": self.levels,
            "ended": self.ended,
            "cause": self.cause,
        }

    def sweep(self) -> Sweep:
        from specops.sweep.runs import parse_sweep

        return parse_sweep(self.as_json(), Path(self.path).stem if self.path else "this run")


def measure_running(
    at: Reach,
    measure: Measure,
    kept: Kept,
    *,
    threshold: str | None = None,
    prompts: str | None = None,
    arms: Sequence[Mapping[str, Json]] = AS_IT_IS,
    first_repeat: int = 1,
    how: str = "as it is",
) -> None:
    """Measure the server that runs now and add it to `kept`. Ctrl-C ends it with what there is."""
    from specops import __version__
    from specops.cli.proof import describe_running, read_texts
    from specops.facts.host import read_host_facts
    from specops.sweep.plan import build_load, describe_about, describe_arm

    book = at.need_playbook()
    facts = read_host_facts(at.connector, at.place.question())
    spec = describe_running(facts, at.place, book, threshold=threshold, shared=True, prompts=prompts)
    load = build_load(
        book,
        measure,
        arms=arms,
        prompts=read_texts(prompts or book.sweep.prompts),
        max_running=spec.get("max_running"),
        first_repeat=first_repeat,
    )
    about = describe_about(
        facts, book, host=at.place.host, load=load, command=_command(), version=__version__
    )
    about["max_running"] = spec.get("max_running")
    told = [describe_arm(arm, about, kept.about or about, how) for arm in arms]
    for arm in told:
        if arm.get("name") == "gated" and arm.get("threshold") is None:
            arm["threshold"] = spec["threshold"]
    known = kept.about.get("arms") or []
    names = {arm["name"] for arm in known}
    kept.about = {**about, **kept.about, "gate": spec["gate"], "threshold": spec["threshold"]}
    kept.about["arms"] = [*known, *(arm for arm in told if arm["name"] not in names)]
    _run(at, {**spec, **load, "about": kept.about}, kept)


def _run(at: Reach, spec: dict[str, Json], kept: Kept) -> None:
    before = len(kept.levels)

    def on_event(event: dict[str, Json]) -> None:
        if event.get("event") == "level":
            kept.levels.append(event)
        at.output.on_event(event)

    try:
        result: Any = at.connector.call(
            "sweep", {"instance": at.place.reference(), "sweep": spec}, on_event=on_event
        )
    except KeyboardInterrupt:
        kept.ended = "interrupted by Ctrl-C"
        return
    except SpecopsError as error:
        if len(kept.levels) == before:
            raise
        kept.ended = error.message
        return
    kept.ended = str(result.get("ended") or "?")
    kept.cause = result.get("cause") or kept.cause
    if not result.get("levels") and kept.ended == "finished":
        kept.ended = "nothing was measured"


def _command() -> str:
    """The command line as it was typed, to be typed again."""
    return shlex.join(["specops", *sys.argv[1:]])


def keep(at: Reach, kept: Kept, *, prometheus: str | None = None) -> None:
    """As JSON below the user's data folder, with the page beside it; nothing where nothing was measured."""
    if not kept.levels:
        return
    from specops.sweep.report.page import make_page
    from specops.sweep.report.prometheus import write_prometheus
    from specops.ui.keep import keep_result, write_text

    kept.path = keep_result("sweep", at.place.host, kept.as_json())
    sweep = kept.sweep()
    write_text(Path(kept.path).with_suffix(".html"), make_page(sweep))
    if prometheus:
        write_prometheus(sweep, Path(prometheus).expanduser())


def tell(at: Reach, kept: Kept) -> int:
    """The table and where it is kept; 16 where it ended early, 130 after Ctrl-C."""
    from specops.sweep.report.tables import HEADS, as_rows
    from specops.sweep.verdict import decide

    shown: dict[str, Json] = {"ended": kept.ended}
    if kept.levels:
        sweep = kept.sweep()
        crossover = decide(sweep)
        shown |= {"heads": list(HEADS), "rows": as_rows(sweep), "kept in": kept.path}
        shown["page"] = str(Path(kept.path).with_suffix(".html"))
        if crossover is not None:
            shown["verdict"] = crossover.sentence()
    if kept.cause:
        shown["cause"] = str(kept.cause.get("message"))
        shown["action"] = str(kept.cause.get("action") or f"specops logs --host {at.place.host}")
    at.output.show("sweep", {**shown, "levels": kept.levels})
    if kept.ended == "finished":
        return 0
    return 130 if "interrupted" in kept.ended else 16
