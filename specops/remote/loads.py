"""How long loads took on this instance, and what that says of the one that runs now."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from . import members, models, state

Json = Any
NOTES = ("server.json", "old-server.json")
"""In a deploy's folder: what `server.launch` and what `server.restore` started."""
MODEL = ("--model-path", "--model")
DRAFT = ("--speculative-draft-model-path", "--speculative-draft-model")
COMPARED = 3
"""Earlier loads that are looked at."""
DRIFT = (0.5, 3.0)
"""How much slower or faster than the earlier load this one is believed to be, at most."""


@dataclass(frozen=True)
class Load:
    """One load that ended in a server that answered."""

    model: str | None
    draft: str | None
    load_s: float
    at: float
    marks: dict[str, float] = field(default_factory=dict)
    """Milestone -> seconds from the start of the wait."""


def describe_models(argv: Sequence[str]) -> dict[str, str | None]:
    """{model, draft} of a launch command."""
    return {"model": members.find_option(argv, *MODEL), "draft": members.find_option(argv, *DRAFT)}


def read_loads(deploys: Path) -> list[Load]:
    """Every measured load of an instance, newest first."""
    found = []
    for name in NOTES:
        for path in deploys.glob(f"*/{name}"):
            note = state.read_json(path)
            if isinstance(note, dict) and note.get("load_s"):
                found.append(
                    Load(
                        model=note.get("model"),
                        draft=note.get("draft"),
                        load_s=float(note["load_s"]),
                        at=float(note.get("at") or 0),
                        marks={str(k): float(v) for k, v in (note.get("marks") or {}).items()},
                    )
                )
    return sorted(found, key=lambda load: load.at, reverse=True)


def find_load(deploys: Path, model: Json, draft: Json) -> Load | None:
    """What the newest loads of this model have in common, with this draft if there were any: the median of
    three at most, so that one that compiled its kernels does not foretell the next."""
    same = [load for load in read_loads(deploys) if load.model == model]
    chosen = ([load for load in same if load.draft == draft] or same)[:COMPARED]
    if not chosen:
        return None
    import statistics  # not at the top: a request for facts would wait for it

    common = set.intersection(*(set(load.marks) for load in chosen))
    marks = {name: statistics.median(load.marks[name] for load in chosen) for name in common}
    return replace(chosen[0], load_s=statistics.median(load.load_s for load in chosen), marks=marks)


def list_newest(deploys: Path) -> list[dict[str, Json]]:
    """[{model, draft, load_s}], one each, for the facts."""
    found: dict[tuple[str | None, str | None], dict[str, Json]] = {}
    for load in read_loads(deploys):
        row = {"model": load.model, "draft": load.draft, "load_s": load.load_s}
        found.setdefault((load.model, load.draft), row)
    return list(found.values())


def find_cookie(deploys: Path, pid: int, start_ticks: int) -> str | None:
    """Of a server that a deploy started through its supervisor: it carries none itself."""
    for name in NOTES:
        for path in deploys.glob(f"*/{name}"):
            note = state.read_json(path) or {}
            if (note.get("pid"), note.get("start_ticks")) == (pid, start_ticks):
                return str(note.get("cookie"))
    return None


def keep_load(deploy_dir: Path, note: dict[str, Json], load_s: float, marks: dict[str, float]) -> None:
    """Write it into the note of the server that was awaited."""
    for name in NOTES:
        path = deploy_dir / name
        if (state.read_json(path) or {}).get("cookie") == note["cookie"]:
            whole = {**note, "load_s": load_s, "marks": marks}
            state.write_private(path, json.dumps(whole, indent=1).encode())


def weigh(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> int:
    """Bytes of weights that a launch command makes a server read; 0 where they are not found. Its
    environment says where the hub's are."""
    hub = models.Hub(environ) if environ else None
    paths = [path for path in describe_models(argv).values() if path]
    return sum(int(models.read_model(path, hub)["bytes"]) for path in paths)


@dataclass
class Eta:
    """How long a load still takes: from an earlier one of the same model, else from bytes against size."""

    earlier: Load | None = None
    given_s: float | None = None
    """What the plan was told, where nothing was measured."""
    weights: int = 0
    marks: dict[str, float] = field(default_factory=dict)
    _began_reading: tuple[float, int] | None = None

    def mark(self, milestone: str, elapsed_s: float) -> None:
        self.marks.setdefault(milestone, round(elapsed_s, 2))

    def left(self, elapsed_s: float, read: int) -> tuple[float | None, str]:
        """(seconds or None, what will be there by then: `ready` or `weights`)."""
        if self.earlier is not None:
            return max(0.0, self._by_marks(self.earlier, elapsed_s)), "ready"
        if self.given_s is not None:
            return max(0.0, self.given_s - elapsed_s), "ready"
        return self._by_bytes(elapsed_s, read), "weights"

    def _by_marks(self, earlier: Load, elapsed_s: float) -> float:
        """What the earlier load took from the last common milestone on, stretched as far as this load is
        slower up to it."""
        common = [name for name in self.marks if earlier.marks.get(name, 0) > 0]
        if not common:
            return earlier.load_s - elapsed_s
        last = max(common, key=lambda name: self.marks[name])
        pace = min(max(self.marks[last] / earlier.marks[last], DRIFT[0]), DRIFT[1])
        return (earlier.load_s - earlier.marks[last]) * pace - (elapsed_s - self.marks[last])

    def _by_bytes(self, elapsed_s: float, read: int) -> float | None:
        """Only once a tenth of the checkpoint was read: before that a rate says nothing."""
        if self._began_reading is None:
            if read > 0:
                self._began_reading = (elapsed_s, read)
            return None
        began_s, first = self._began_reading
        if not self.weights or not self.weights * 0.1 < read < self.weights or elapsed_s <= began_s:
            return None
        return (self.weights - read) / ((read - first) / (elapsed_s - began_s)) if read > first else None

    def share_read(self, read: int) -> float:
        """Of the checkpoint, 0 to 1; 0 where its size is unknown."""
        return min(1.0, read / self.weights) if self.weights else 0.0
