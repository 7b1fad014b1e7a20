"""The rows of the batch gate's proof: what each says, how they are kept, and what they sum up to."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import specops

RESULT = Path(__file__).resolve().parent / "results" / "gate_proof.json"
CROSSINGS = 10
"""A count and no rate: how fast the load crosses is the machine's doing."""
TOTALS = (
    "closed_steps",
    "open_steps",
    "crossings",
    "draft_forwards_while_closed",
    "requests",
    "failed",
    "leak_lines",
)


def problems(row: dict[str, Any]) -> list[str]:
    """What a row says against the gate; empty is a proof."""
    gate = row["gate"]
    checks = {
        "outputs differ from the server without speculation": row["outputs_equal"],
        "too few requests crossed the gate": row["crossed_mid_request"] >= row.get("crossing", 32) / 2,
        f"features differ: {row['features_differ']}": not row["features_differ"],
        "live control": row["live_control"],
        "requests failed": row["failed"] == 0,
        f"it crossed the gate less than {CROSSINGS} times": row["crossings"] >= CROSSINGS,
        "the draft ran while closed": row["draft_forwards_while_closed"] == 0,
        "the gate counts other steps than ran": (gate["closed_steps"], gate["open_steps"], gate["switches"])
        == (row["closed_steps"], row["open_steps"], row["crossings"]),
        "the metrics differ from the gate": row["metrics_agree"],
        "leaks or tracebacks in the log": row["leak_lines"] == 0,
        "KV is still held": row["kv_after"] == 0,
        "acceptance is not back": all(
            victim["ratio"] >= 0.9 and victim["closed"] < 1.5 and victim["same_text"]
            for victim in row["victims"]
        ),
    }
    after = row.get("smoke")
    if after:
        checks[f"the smoke test: {after['said']}"] = set(after["verdicts"].values()) == {"pass"}
        checks["the draft ran while closed, in the smoke test"] = after["draft_forwards_while_closed"] == 0
        checks["leaks or tracebacks in the smoke test's log"] = after.get("leak_lines", 0) == 0
    return [text for text, holds in checks.items() if not holds]


def case_of(row: dict[str, Any]) -> str:
    """The newer worker drafts a single branch here unless the name says otherwise, the older one trees."""
    tree = "-tree" if row["worker"] == "v2" and row["topk"] > 1 else ""
    return f"{row['release']}-{row['worker']}{tree}"


def today() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d")


def kept_row(release: str, worker: str, topk: int) -> dict[str, Any] | None:
    """A case's row as it is in the result file."""
    rows = json.loads(RESULT.read_text(encoding="utf-8"))["rows"] if RESULT.is_file() else []
    held = (row for row in rows if (row["release"], row["worker"], row["topk"]) == (release, worker, topk))
    return next(held, None)


def keep_row(row: dict[str, Any], used: dict[str, str], order: list[str]) -> None:
    """Put a case's row in the result file, in place of its earlier one, failed or not."""
    old = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.is_file() else {"rows": [], "versions": {}}
    rows = [*(other for other in old["rows"] if case_of(other) != case_of(row)), row]
    rows.sort(key=lambda one: order.index(case_of(one)))
    result = {
        "name": "gate_proof",
        "date": today(),
        "command": "make gate-proof",
        "machine": {"cpus": os.cpu_count(), "gpu": "none"},
        "versions": {**old["versions"], **used, "specops": specops.__version__},
        "rows": rows,
        "summary": summary(rows),
    }
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    ran = [row for row in rows if "failed_with" not in row]
    return {
        "cases": len(rows),
        "proved": sum(not problems(row) for row in ran),
        **{key: sum(row[key] for row in ran) for key in TOTALS},
        "outputs_equal": all(row["outputs_equal"] for row in ran),
        "worst_reentry_ratio": min((v["ratio"] for row in ran for v in row["victims"]), default=None),
    }
