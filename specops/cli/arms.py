"""Arms by launches: deploy each, measure it, and roll back through them, so that each is measured again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from specops.cli.measuring import Kept, measure_running
from specops.cli.reach import Reach
from specops.errors import SpecopsError

if TYPE_CHECKING:
    from specops.config.playbook import Playbook
    from specops.engine.outcome import Outcome
    from specops.sweep.arms import Visit
    from specops.sweep.plan import Measure

Json = Any
Refine = Callable[[Kept], Sequence[int]]
"""More levels to measure, once every arm was measured."""


@dataclass(slots=True)
class Launches:
    at: Reach
    names: tuple[str, ...]
    measure: Measure
    kept: Kept
    folders: Sequence[str] | None = None
    prompts: str | None = None
    _changed: list[bool] = field(default_factory=list)
    """By visit: whether it took a deploy, which a rollback takes back."""

    def run(self, *, yes: bool, refine: Refine | None = None) -> bool:
        """False where the operator said no. What served before serves again in the end, also after a failure;
        after Ctrl-C the arm that is up stays, and a note says how to go back."""
        from specops.sweep.arms import announce, order_visits
        from specops.ui.ask import confirm

        host = self.at.place.host
        measure = self.measure
        points = len(measure.levels) + len(measure.rates)
        words = announce(self.names, points, measure.repeats, measure.window_s, self._load_s())
        self.at.output.note(f"arms: {words}")
        if not confirm(f"Stop what serves on {host}, {2 * len(self.names)} times?", assume_yes=yes):
            return False
        forward, back = order_visits(self.names, self.measure.repeats)
        try:
            self._visit(forward, back, refine)
        except SpecopsError as error:
            if not self.kept.levels:
                raise
            self.kept.ended = error.message
        finally:
            self._unwind()
        return True

    def _load_s(self) -> float | None:
        from specops.facts.host import read_host_facts

        model = ["--model-path", self.at.need_playbook().model.path]
        return read_host_facts(self.at.connector, self.at.place.question()).state.load_s(model)

    def _visit(self, forward: Sequence[Visit], back: Sequence[Visit], refine: Refine | None) -> None:
        for visit in forward:
            self._launch(visit)
        extra = tuple(refine(self.kept)) if refine and self._well else ()
        self._measure_again(forward[-1], extra)
        self._return(forward, back, extra)

    @property
    def _well(self) -> bool:
        return self.kept.ended == "finished"

    def _launch(self, visit: Visit) -> None:
        from specops.cli.follow import Follower
        from specops.cli.wishes import make_wish
        from specops.engine.outcome import Deployed
        from specops.engine.planner import Nothing, make_plan
        from specops.sweep.arms import arm_playbook

        if not self._well:
            return
        book = arm_playbook(self.at.need_playbook(), visit.arm, self.measure.levels)
        wish = make_wish(
            book, ids=None, folders=self.folders, sweep=True, levels=_words(self.measure.levels), prompts=None
        )
        made = make_plan(self.at.place, wish, self.at.connector)
        if isinstance(made, Nothing):
            unsure = self._smoke(book)
        else:
            self.at.output.note(f"arm {visit.arm}: deploying {made.id}")
            outcome = Follower(self.at).run(made)
            self.at.output.outcome(outcome)
            if not isinstance(outcome, Deployed):
                self._stop(f"arm {visit.arm} was not deployed", outcome)
                return
            unsure = outcome.inconclusive
        self._changed.append(not isinstance(made, Nothing))
        if unsure:
            self.kept.ended = f"arm {visit.arm} has no passed smoke test: {', '.join(unsure)}"
            return
        self._measure(visit, book, replace(self.measure, repeats=visit.repeats))

    def _smoke(self, book: Playbook) -> tuple[str, ...]:
        """Of an arm that serves already; empty where it passed."""
        from specops.cli.prove import smoke_running

        code, _, _ = smoke_running(replace(self.at, playbook=book), threshold=None, prompts=self.prompts)
        return (f"exit {code}",) if code else ()

    def _measure(self, visit: Visit, book: Playbook, measure: Measure) -> None:
        self.at.output.note(f"arm {visit.arm}: measuring")
        measure_running(
            replace(self.at, playbook=book),
            measure,
            self.kept,
            prompts=self.prompts,
            arms=({"name": visit.arm},),
            first_repeat=visit.first_repeat,
            how="launch",
        )

    def _measure_again(self, visit: Visit, extra: Sequence[int]) -> None:
        """The levels that were found worth a closer look, at the arm that is up."""
        if extra and self._well:
            measure = replace(self.measure, levels=tuple(extra), rates=())
            self._measure(replace(visit, first_repeat=1), self._book(visit), measure)

    def _book(self, visit: Visit) -> Playbook:
        from specops.sweep.arms import arm_playbook

        return arm_playbook(self.at.need_playbook(), visit.arm, self.measure.levels)

    def _return(self, forward: Sequence[Visit], back: Sequence[Visit], extra: Sequence[int]) -> None:
        again = {visit.arm: visit for visit in back}
        for visit in reversed(forward[:-1]):
            if not self._well or not (again.get(visit.arm) or extra):
                return
            if not self._roll_back():
                return
            if visit.arm in again:
                rest = again[visit.arm]
                self._measure(rest, self._book(visit), replace(self.measure, repeats=rest.repeats))
            self._measure_again(visit, extra)

    def _roll_back(self) -> bool:
        """One step down; True where what served before serves again."""
        from specops.cli.follow import Follower
        from specops.engine.outcome import Deployed
        from specops.engine.rollback import make_rollback
        from specops.steps.server import Clocks

        if not self._changed.pop():
            return True
        book = self.at.need_playbook()
        made = make_rollback(
            self.at.place,
            self.at.connector,
            to=None,
            clocks=Clocks(progress_s=book.ready.progress_s, cap_s=book.ready.cap_s),
            drain_s=book.stop.drain_s,
            term_s=book.stop.term_s,
        )
        outcome = Follower(self.at).run(made)
        self.at.output.outcome(outcome)
        if not isinstance(outcome, Deployed):
            self._stop("could not go back", outcome)
            return False
        return True

    def _stop(self, what: str, outcome: Outcome) -> None:
        """Somebody who let go of a deploy that goes on has interrupted the whole."""
        from specops.engine.outcome import StillRunning

        if isinstance(outcome, StillRunning):
            self.kept.ended = f"interrupted: deploy {outcome.deploy} goes on by itself"
        else:
            self.kept.ended = f"{what}: {getattr(outcome, 'cause', '')}"

    def _unwind(self) -> None:
        if "interrupted" in self.kept.ended:
            left = sum(self._changed)
            host = self.at.place.host
            self.at.output.note(
                f"{left} deploys of this sweep are in force; to go back, {left} times: "
                f"specops rollback --host {host}"
            )
            return
        while self._changed:
            if not self._roll_back():
                return


def _words(levels: Sequence[int]) -> str | None:
    return ",".join(map(str, levels)) or None
