"""A gated deploy over two tensor-parallel ranks on the CPU, and the way back to the one-rank server."""

from __future__ import annotations

import os
from pathlib import Path

from specops.lab import ssh
from specops.lab.lab import LabState
from specops.remote import procs
from tests.e2e.command import specops
from tests.e2e.server import is_speculating, one_token, owner_of_port
from tests.e2e.trees import digest_tree

DEADLINE_S = 1500


def bind_cores() -> str:
    """A core for each rank, as SGLang's variable takes it; the same one twice where there is no other."""
    cores = sorted(os.sched_getaffinity(0))
    return f"{cores[0]}|{cores[-1]}"


TWO_RANKS = (
    *("--set", "server.tp=2", "--set", f"env.set.SGLANG_CPU_OMP_THREADS_BIND={bind_cores()}"),
    *("--set", "ready.progress_s=400", "--set", "ready.cap_s=900", "--set", "smoke.budget_s=600"),
)
DEPLOY = ("deploy", "--host", "lab", "--threshold", "5", *TWO_RANKS, "--yes", "--json")


def titles_of(port: int) -> set[str]:
    launcher = owner_of_port(port)
    assert launcher is not None
    argv = [procs.read_argv(pid)[:1] for pid in procs.children_of(launcher)]
    return {words[0].split()[0] for words in argv if words and words[0].startswith("sglang::")}


def test_a_gated_deploy_over_two_ranks_and_back(lab: LabState) -> None:
    assert ssh.banner(lab.ssh_port).startswith("SSH-2.0-OpenSSH")
    before = digest_tree(Path(lab.package))

    done = specops(*DEPLOY, deadline_s=DEADLINE_S)
    assert done.code == 0, done.err + done.out[-3000:]
    assert done.entries("closed")[-1]["how"] == "deployed"
    verdicts = {entry["id"]: entry["verdict"] for entry in done.entries("check")}
    assert verdicts == dict.fromkeys(("S0", "S1", "S3", "S2", "S6"), "pass")
    assert {"sglang::scheduler_TP0", "sglang::scheduler_TP1", "sglang::detokenizer"} <= titles_of(lab.port)
    shown = specops("status", "--host", "lab", "--json").events("status")[0]["status"]
    assert shown["drift"] == []

    back = specops("rollback", "--host", "lab", "--yes", "--json", deadline_s=DEADLINE_S)
    assert back.code == 0, back.err + back.out[-2000:]
    assert digest_tree(Path(lab.package)) == before
    assert "sglang::scheduler_TP1" not in titles_of(lab.port)
    assert one_token(lab.port)
    assert is_speculating(lab.port)
