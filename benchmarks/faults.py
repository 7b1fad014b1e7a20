"""The whole fault suite: every cut of tests/faults, then every planted bug: `python -m benchmarks.faults`.

`--keep` goes on where an earlier run ended; `--every 10` is a sample: one in ten, no bugs, no result kept.
Exit 0 only if every cut ended exactly old or exactly new, with the right outcome and nothing left over, and
every planted bug was found.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import specops
from tests.faults import links, table
from tests.faults.cuts import Cut, room, try_all
from tests.planted import bugs

RESULT = Path(__file__).resolve().parent / "results" / "faults.json"
Json = Any
Key = tuple[str, ...]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="only what is not in the results yet")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="a sample: one cut in N")
    asked = parser.parse_args()
    rows: list[dict[str, Json]] = json.loads(RESULT.read_text())["rows"] if asked.keep else []
    whole = asked.every == 1
    for row in try_what_is_new({key_of(row) for row in rows}, asked.every):
        rows.append(row)
        if problem := problem_of(row):
            print(f"  {problem}", flush=True)
        if whole and (len(rows) % 20 == 0 or "bug" in row):
            write(rows)
    if whole:
        write(rows)
    print(line(summary(rows)), flush=True)
    return 1 if any(problem_of(row) for row in rows) else 0


def try_what_is_new(known: set[Key], stride: int) -> Iterator[dict[str, Json]]:
    def new(cuts: list[Cut]) -> list[Cut]:
        return [cut for cut in cuts[::stride] if ("cut", *cut.key) not in known]

    with room() as folder:
        courses = table.read_courses(folder)
        cuts, of_links = new(table.every(courses)), new(links.every())
        print(f"{len(cuts) + len(of_links)} cuts to try", flush=True)
        for row in try_all(cuts, courses, folder):
            yield row.as_json()
        for row in links.try_all(of_links, folder / "links"):
            yield row.as_json()
    for bug in (bugs.NO_BUG, *bugs.read_bugs()) if stride == 1 else ():
        if ("bug", bug.id) not in known:
            with room() as folder:
                found = bugs.hunt(bug, Path(tempfile.mkdtemp(dir=folder)))
            yield {"bug": bug.id, "what": bug.what, "found": bool(found.by), "by": found.by}


def key_of(row: dict[str, Json]) -> Key:
    if "bug" in row:
        return ("bug", row["bug"])
    return ("cut", row["plan"], row["entry"], row["when"], row["by"])


def problem_of(row: dict[str, Json]) -> str:
    """What is wrong with a row; empty where nothing is."""
    if "bug" in row:
        if row["bug"] == bugs.NO_BUG.id:
            return f"the suite is red without a bug, by {row['by']}" if row["found"] else ""
        return "" if row["found"] else f"planted bug {row['bug']} was not found"
    fine = row["ended"] in ("old", "new") and row["outcome_right"] and not row["leftovers"]
    words = f"{row['plan']}: {row['by']} {row['when']} {row['entry']}"
    return "" if fine else f"{words}: ended {row['ended']}; {row['wrong']}; {row['leftovers']}"


def summary(rows: list[dict[str, Json]]) -> dict[str, int]:
    cuts = [row for row in rows if "bug" not in row]
    planted = [row for row in rows if row.get("bug") not in (None, bugs.NO_BUG.id)]
    red = any(row.get("bug") == bugs.NO_BUG.id and row["found"] for row in rows)
    return {
        "cuts": len({key_of(row) for row in cuts}),
        "ended_old": sum(row["ended"] == "old" for row in cuts),
        "ended_new": sum(row["ended"] == "new" for row in cuts),
        "ended_between": sum(row["ended"] == "between" for row in cuts),
        "outcome_wrong": sum(not row["outcome_right"] for row in cuts),
        "leftovers": sum(len(row["leftovers"]) for row in cuts),
        "planted": len(planted),
        "planted_found": 0 if red else sum(row["found"] for row in planted),
    }


def line(summary: dict[str, int]) -> str:
    wrong = f", {summary['ended_between']} between" if summary["ended_between"] else ""
    wrong += f", {summary['outcome_wrong']} outcomes wrong" if summary["outcome_wrong"] else ""
    return (
        f"{summary['cuts']} cuts tried: {summary['ended_old']} ended old, {summary['ended_new']} ended new"
        f"{wrong}, {summary['leftovers']} leftovers; "
        f"{summary['planted_found']} of {summary['planted']} planted bugs found"
    )


def write(rows: list[dict[str, Json]]) -> None:
    whole = {
        "name": "faults",
        "date": datetime.now(UTC).date().isoformat(),
        "command": "make faults",
        "machine": {"cpus": os.cpu_count(), "gpu": "none", "kernel": platform.release()},
        "versions": {"specops": specops.__version__, "python": platform.python_version()},
        "rows": rows,
        "summary": summary(rows),
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
