"""The first end-to-end test: a patch that answers C=1 and dies above T is caught and rolled back."""

from __future__ import annotations

import json
from pathlib import Path

from specops.lab.lab import LabState
from tests.e2e.command import specops
from tests.e2e.server import is_speculating, one_token, owner_of_port
from tests.e2e.trees import digest_tree

BROKEN = "demo-dies-above-threshold"


def test_broken_patch_is_caught_above_the_threshold_and_rolled_back(lab: LabState) -> None:
    package = Path(lab.package)
    before = digest_tree(package)
    old_pid = owner_of_port(lab.port)

    ran = specops("deploy", "--host", "lab", "--threshold", "5", "--patch", BROKEN, "--yes", "--json")

    assert ran.code == 20, ran.err + ran.out[-3000:]
    assert digest_tree(package) == before

    phases = {entry["index"]: entry["phase"] for entry in ran.entries("starting")}
    done = {phases[entry["index"]] for entry in ran.entries("done")}
    assert "rehearse" in done
    verdicts = {entry["id"]: entry["verdict"] for entry in ran.entries("check")}
    assert verdicts["S1"] == "pass"
    assert verdicts["S3"] == "fail"
    assert ran.entries("closed")[-1]["how"] == "rolled back"

    # The old server is back: another process, the same arguments, and it speculates again.
    assert owner_of_port(lab.port) not in (None, old_pid)
    assert one_token(lab.port)
    assert is_speculating(lab.port)

    # From the death to the verdict, by the journal's own clock.
    verdict = ran.entries("verdict")[0]
    delay_s = verdict["at"] - verdict["cause"]["at"]
    print(f"cause at {verdict['cause']['at']:.3f}, verdict at {verdict['at']:.3f}: {delay_s:.3f} s")  # noqa: T201 the figure is this test's output
    assert 0 <= delay_s <= 2

    # What was gathered before anything was undone is on this machine already, and on one screen.
    (kept,) = [
        Path(event["message"].rpartition(" ")[2])
        for event in ran.events("note")
        if "evidence is kept in" in event["message"]
    ]
    assert kept.stat().st_size > 1000
    shown = specops("evidence", "show", "--host", "lab", "--json").events("evidence")[0]["evidence"]
    assert "must match the size" in json.dumps(shown["cause"])
    assert "must match the size" in json.dumps(shown["root"])
    assert shown["cause"]["detail"]["cause"]["traceback"]
    assert shown["versions"]["sglang"] == "0.5.18"
    screen = specops("evidence", "show", "--host", "lab")
    assert "must match the size" in " ".join((screen.out + screen.err).split())
