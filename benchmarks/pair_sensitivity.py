"""Does the lab's pair notice stale draft state? `python -m benchmarks.pair_sensitivity`.

SGLang's native gate goes on extending the draft while it is closed; SGLANG_SPEC_SKIP_ZERO_STEP_DRAFT_EXTEND
stops that, and every word stays right. The smoke test's S4 measures the victims of a crossing on both
servers. Exit 0 only if every ratio is above 0.9 with the extension and below 0.8 without it.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import specops
from benchmarks.gated_server import serve, smoke

RESULT = Path(__file__).resolve().parent / "results" / "pair_sensitivity.json"
SKIP = "SGLANG_SPEC_SKIP_ZERO_STEP_DRAFT_EXTEND"
HEALTHY_FLOOR, STALE_CEILING = 0.9, 0.8


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", default="0.5.18")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--port", type=int, default=31330)
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for skips in (False, True):
        more = {SKIP: "1" if skips else "0"}
        with (
            tempfile.TemporaryDirectory() as work,
            serve(asked.release, asked.port, Path(work), env=more) as server,
        ):
            for repeat in range(asked.repeats):
                found = measure(smoke(server, checks=["S4"]), asked.release, skips, repeat)
                rows += found
                for row in found:
                    print(f"skips {skips!s:5} repeat {repeat} {row['ratio']} {row['summary']}", flush=True)
                write(rows)
    return 0 if all(is_right(row) for row in rows) else 1


def measure(result: dict[str, Any], release: str, skips: bool, repeat: int) -> list[dict[str, Any]]:
    """A row a victim; one without a ratio where S4 could not tell."""
    (check,) = result["checks"]
    seen = check["evidence"]
    base = {
        "release": release,
        "skips_draft_extend": skips,
        "repeat": repeat,
        "verdict": check["verdict"],
        "summary": check["summary"],
        "same_text": seen.get("same_text"),
    }
    ratios = seen.get("ratios")
    if not ratios:
        return [{**base, "victim": None, "after": None, "uninterrupted": None, "ratio": None}]
    return [
        {
            **base,
            "victim": victim,
            "after": seen["after"][victim],
            "uninterrupted": seen["uninterrupted"][victim],
            "ratio": ratio,
        }
        for victim, ratio in enumerate(ratios)
    ]


def is_right(row: dict[str, Any]) -> bool:
    ratio = row["ratio"]
    if ratio is None:
        return False
    return bool(ratio < STALE_CEILING if row["skips_draft_extend"] else ratio > HEALTHY_FLOOR)


def write(rows: list[dict[str, Any]]) -> None:
    RESULT.parent.mkdir(exist_ok=True)
    whole = {
        "name": "pair_sensitivity",
        "date": datetime.now(UTC).date().isoformat(),
        "command": "python -m benchmarks.pair_sensitivity",
        "machine": {"cpus": os.cpu_count(), "gpu": "none"},
        "versions": {
            "specops": specops.__version__,
            "sglang": ", ".join(sorted({row["release"] for row in rows})),
        },
        "rows": rows,
        "summary": summary(rows),
    }
    RESULT.write_text(json.dumps(whole, indent=1) + "\n")


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    def ratios(skips: bool) -> list[float]:
        return [
            row["ratio"] for row in rows if row["skips_draft_extend"] is skips and row["ratio"] is not None
        ]

    return {
        "victims": len(rows),
        "as_expected": sum(is_right(row) for row in rows),
        "healthy_ratio_min": min(ratios(False), default=None),
        "stale_ratio_max": max(ratios(True), default=None),
    }


if __name__ == "__main__":
    raise SystemExit(main())
