"""What a tensor-parallel run keeps: its rows as they come, what they come to, and a table for people."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import specops
from benchmarks.tp_box import Box

Row = dict[str, Any]
RESERVE_S = 45.0
"""Kept for the end: what still runs is stopped, and the table is printed."""


class OutOfTime(Exception):
    """The budget does not hold another phase."""


@dataclass(kw_only=True)
class Record:
    """The result file, written anew after every row: a run that is cut leaves what it saw."""

    path: Path
    box: Box
    command: str
    machine: Mapping[str, Any]
    budget_s: float
    run: str = "death"
    """Which of the runs that one file holds: with a rank's death, or `arms` alone."""
    rows: list[Row] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def add(self, kind: str, **values: Any) -> None:
        at_s = round(time.monotonic() - self.began, 1)
        row = {"kind": kind, "tp": self.box.tp, "backend": self.box.backend, "run": self.run, "at_s": at_s}
        row |= values
        self.rows.append(row)
        print(json.dumps(row)[:400], flush=True)
        self.write()

    def write(self) -> None:
        """Rows of other runs stay: one file holds every tp and every run of a backend."""
        old = json.loads(self.path.read_text()) if self.path.is_file() else {}
        mine = (self.box.tp, self.run)
        others = [row for row in old.get("rows", []) if (row["tp"], row.get("run", "death")) != mine]
        rows = sorted([*others, *self.rows], key=lambda row: int(row["tp"]))
        result = {
            "name": self.path.stem,
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "command": self.command,
            "machine": dict(self.machine),
            "versions": {"specops": specops.__version__, "sglang": self.box.release},
            "rows": rows,
            "summary": summary(rows),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        part.replace(self.path)

    @property
    def remaining_s(self) -> float:
        return self.budget_s - RESERVE_S - (time.monotonic() - self.began)

    def left_s(self, asked_s: float) -> float:
        """So many seconds for the next phase. Raises OutOfTime where not even half of them are there."""
        left = self.remaining_s
        if left < asked_s / 2:
            raise OutOfTime(f"{left:.0f} s are left, the next phase takes up to {asked_s:.0f} s")
        return min(left, asked_s)


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """By tp: whether every reading of the ranks agreed, how long the death took, what was left."""
    found: dict[str, Any] = {}
    for tp in sorted({row["tp"] for row in rows}):
        mine = [row for row in rows if row["tp"] == tp]
        gates = [row for row in mine if row["kind"] in ("gate", "level") and row.get("ranks")]
        death: Row = next((row for row in mine if row["kind"] == "death"), {})
        ends = [row["leftovers"] for row in mine if row["kind"] == "leftovers"]
        found[f"tp {tp}"] = {
            "deploys": [row["how"] for row in mine if row["kind"] == "deploy"],
            "load_s": [row["load_s"] for row in mine if row["kind"] == "deploy"],
            "readings_of_all_ranks": len(gates),
            "ranks_agree": bool(gates) and all(row["ranks_agree"] for row in gates),
            "death_to_verdict_s": death.get("death_to_verdict_s"),
            "death_to_served_s": death.get("death_to_served_s"),
            "death_to_restored_s": death.get("death_to_restored_s"),
            "leftovers": [left for end in ends for left in end] if ends else None,
        }
    return found


def journal(events: Sequence[Row], kind: str) -> list[Row]:
    entries = (event["entry"] for event in events if event.get("event") == "journal")
    return [entry for entry in entries if entry["entry"] == kind]


def phases(events: Sequence[Row]) -> dict[str, float]:
    """Seconds by step, from its `starting` to its `done` or `failed`; undone steps after `undo: `."""
    began: dict[int, tuple[str, float]] = {}
    undoing: dict[int, float] = {}
    found: dict[str, float] = {}
    for entry in (event["entry"] for event in events if event.get("event") == "journal"):
        index, at = entry.get("index"), float(entry["at"])
        match entry["entry"]:
            case "starting":
                began[index] = (str(entry["name"]), at)
            case "done" | "failed" if index in began:
                found[began[index][0]] = round(at - began[index][1], 2)
            case "undoing":
                undoing[index] = at
            case "undone" | "undo_failed" if index in undoing:
                found[f"undo: {began[index][0]}"] = round(at - undoing[index], 2)
    return found


def milestones(events: Sequence[Row], phase: str) -> dict[str, float]:
    """Seconds from the start of the wait to each milestone of a load."""
    seen = (event for event in events if event.get("event") == "progress" and event.get("phase") == phase)
    return {str(event["milestone"]): float(event["elapsed_s"]) for event in seen}


def ranks_of(gate: Mapping[str, Any]) -> Row:
    """What each rank says of its gate, gathered by the server in one answer."""
    ranks = gate.get("ranks") or []
    return {
        "ranks": ranks,
        "ranks_agree": bool(ranks) and all(rank == ranks[0] for rank in ranks),
        "open_steps": gate.get("open_steps"),
        "closed_steps": gate.get("closed_steps"),
        "switches": gate.get("switches"),
    }


def table(rows: Sequence[Row], tp: int) -> list[str]:
    """Lines for people: deploys, ranks, death, leftovers, and tok/s by arm and level."""
    mine = [row for row in rows if row["tp"] == tp]
    lines = []
    for row in mine:
        match row["kind"]:
            case "deploy":
                lines.append(f"{row['name']}: {row['how']} {row.get('cause') or ''}"[:300])
                lines.append(f"  steps s: {row['steps']}  load: {row['milestones']['ready']}"[:900])
                marks = [f"{c['id']} {c['verdict']}: {c['summary']}"[:140] for c in row["checks"]]
                lines += [f"  {mark}" for mark in marks]
            case "gate" | "death" | "leftovers" | "note":
                lines.append(json.dumps({k: v for k, v in row.items() if k not in ("tp", "backend")})[:500])
    arms = list(dict.fromkeys(row["arm"] for row in mine if row["kind"] == "level"))
    lines.append("C".rjust(4) + "".join(arm.rjust(16) for arm in arms) + "   tok/s (failed) ranks agree")
    for size in sorted({row["C"] for row in mine if row["kind"] == "level"}):
        cells = []
        for arm in arms:
            found = [row for row in mine if row["kind"] == "level" and (row["arm"], row["C"]) == (arm, size)]
            cells.append("/".join(cell(row) for row in found).rjust(16))
        lines.append(str(size).rjust(4) + "".join(cells))
    return lines


def cell(row: Row) -> str:
    bad = row["asked"] - row["ok"]
    agree = "" if row.get("ranks_agree", True) else " RANKS DIFFER"
    return f"{row['tok_s']:.0f}" + (f" ({bad})" if bad else "") + agree
