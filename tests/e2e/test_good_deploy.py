"""A good deploy, all that can be asked of it afterwards, and the way back."""

from __future__ import annotations

import json
from pathlib import Path

from specops.lab import ssh
from specops.lab.lab import LabState
from tests.e2e.command import specops
from tests.e2e.server import is_speculating, one_token, owner_of_port
from tests.e2e.trees import digest_tree

DEPLOY = ("deploy", "--host", "lab", "--threshold", "5", "--yes", "--json")
HARMLESS = ("--patches", str(Path(__file__).parents[1] / "patches"), "--patch", "harmless")


def test_deploy_smoke_sweep_and_rollback(lab: LabState) -> None:
    assert ssh.banner(lab.ssh_port).startswith("SSH-2.0-OpenSSH")
    package = Path(lab.package)
    before = digest_tree(package)

    plan = specops("plan", "--host", "lab", "--threshold", "5", "--json")
    assert plan.code == 0, plan.err
    shown = plan.events("plan")[0]["plan"]
    assert shown["summary"]["gate"] == "native"
    assert '{"1": {"candidate_steps": [3]}, "6": {"candidate_steps": [0]}}' in shown["diffs"][0]["diff"]
    assert "--speculative-adaptive-config" in shown["launch"]
    assert not Path(lab.state_dir).exists(), "making a plan only reads"

    done = specops(*DEPLOY, "--sweep", "--levels", "1,2", "--set", "sweep.requests=6")
    assert done.code == 0, done.err + done.out[-3000:]
    assert done.entries("closed")[-1]["how"] == "deployed"
    verdicts = {entry["id"]: entry["verdict"] for entry in done.entries("check")}
    assert {check: verdicts[check] for check in ("S0", "S1", "S2", "S3", "S6")} == dict.fromkeys(
        ("S0", "S1", "S2", "S3", "S6"), "pass"
    )
    levels = done.events("level")
    assert [level["C"] for level in levels] == [1, 2]
    assert levels[0]["line"].startswith("C=  1 | 6 requests | throughput:")
    assert "| ok: 6/6" in levels[0]["line"]

    again = specops(*DEPLOY)
    assert again.code == 0, again.err
    assert not again.entries("starting"), "a deploy that changes nothing restarts nothing"

    status = specops("status", "--host", "lab", "--json").events("status")[0]["status"]
    assert status["drift"] == []
    assert json.dumps(status).count("native")

    smoke = specops("smoke", "--host", "lab", "--threshold", "5", "--json")
    assert smoke.code == 0, smoke.err + smoke.out[-2000:]

    back = specops("rollback", "--host", "lab", "--yes", "--json")
    assert back.code == 0, back.err + back.out[-2000:]
    assert digest_tree(package) == before
    assert not list(Path(lab.state_dir).rglob("gates/*.json")), "the gate's file went with its deploy"
    assert one_token(lab.port)
    assert is_speculating(lab.port)
    nothing = specops("rollback", "--host", "lab", "--yes")
    assert nothing.code == 13, nothing.err


def test_patched_deploy_swaps_bytes_and_rollback_puts_them_back(lab: LabState) -> None:
    package = Path(lab.package)
    before = digest_tree(package)
    old = owner_of_port(lab.port)

    done = specops(*DEPLOY, *HARMLESS)
    assert done.code == 0, done.err + done.out[-3000:]
    after = digest_tree(package)
    changed = sorted(path for path in after if after[path] != before.get(path))
    assert len(changed) == 1
    assert (package / changed[0]).stat().st_mode & 0o777 == 0o644
    assert owner_of_port(lab.port) != old

    # as a pip upgrade does: a new file in the place of the patched one
    patched, upgraded = package / changed[0], package / "upgraded.py"
    kept = patched.read_bytes()
    upgraded.write_bytes(kept + b"# another release\n")
    upgraded.replace(patched)
    (drift,) = specops("status", "--host", "lab", "--json").events("status")[0]["status"]["drift"]
    assert f"{changed[0]} is not as deploy" in drift
    upgraded.write_bytes(kept)
    upgraded.replace(patched)

    back = specops("rollback", "--host", "lab", "--yes", "--json")
    assert back.code == 0, back.err + back.out[-2000:]
    assert digest_tree(package) == before
