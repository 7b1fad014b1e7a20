"""What a plan takes from a patch besides its files: flags, variables, and the launches that it refuses."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from specops.config.overrides import parse_override
from specops.config.patch import Patch, load_patches
from specops.config.playbook import Playbook, load_playbook
from specops.config.proof import patch_bytes
from specops.engine.place import Place
from specops.engine.plan import Plan
from specops.engine.planner import Wish, make_plan
from specops.engine.rebase import rebase_patch
from specops.errors import ConfigError, Refused
from specops.steps.diff import make_diff, sha256
from tests.unit.engine.test_preflight import SERVER

BEFORE, AFTER = b"STEPS = 3\n", b"STEPS = 0\n"
PATCH = f"""\
id: gate
title: t
provides: {{gate: batch-gate}}
flags: {{speculative-disable-batch-threshold: "{{threshold}}", gate-hysteresis: "n{{hysteresis_steps}}"}}
env: {{GATE_LOG: "t{{threshold}}"}}
refuses:
  - {{flag: enable-lora, why: it has not been tried}}
  - {{flag: page-size, value: 16, why: pages are one token here}}
releases:
  0.5.12:
    modules: [sglang.worker]
    files:
      - {{path: worker.py, before: {sha256(BEFORE)}, after: {sha256(AFTER)}, diff: worker.diff}}
"""
PLACE = Place(host="box", port=30000, python="/opt/bin/python", state="/s", env={"A": "1"})


class Host:
    """Answers like an agent on a host with one file in its install; `installed`: what specops changed."""

    def __init__(
        self, release: str = "0.5.12", argv: list[str] | None = None, worker: bytes = BEFORE
    ) -> None:
        self.release, self.argv, self.worker = release, argv, worker
        self.writable = True
        self.deploys: list[dict[str, Any]] = []
        self.installed: list[dict[str, Any]] = []

    def call(self, verb: str, params: dict[str, Any], **_: Any) -> Any:
        if verb == "read_file":
            return {"files": {"worker.py": {"base64": base64.b64encode(self.worker).decode()}}, "stored": {}}
        if verb == "history":
            return {"deploys": self.deploys, "stack": []}
        server = {**SERVER, "argv": self.argv, "env": {"HOME": "/root"}} if self.argv is not None else None
        current = {"id": "d0", "files": [], "installed": self.installed} if self.installed else None
        models = {path: {"exists": True, "complete": True, "detail": ""} for path in params["models"]}
        return {
            "platform": {
                "machine_id": "m", "boot_id": "b", "hostname": "h", "user": "u", "uid": 1000,
                "home": "/home/u", "python": "3.11",
            },
            "install": {
                "python": "/opt/bin/python", "root": "/opt/sglang", "version": self.release, "torch": None,
                "writable": self.writable, "files": {"worker.py": sha256(self.worker)},
            },
            "models": models, "server": server, "port": {"free": True, "holder": None},
            "state": {"dir": "/s", "key": "k", "current": current},
        }  # fmt: skip


@pytest.fixture
def patches(tmp_path: Path) -> dict[str, Patch]:
    folder = tmp_path / "patches" / "gate"
    folder.mkdir(parents=True)
    (folder / "patch.yaml").write_text(PATCH)
    (folder / "worker.diff").write_text(make_diff(BEFORE, AFTER, "worker.py"))
    return load_patches(folder.parent)


def book(*settings: str) -> Playbook:
    overrides = [parse_override(text) for text in ("gate.threshold=7", "draft.topk=4", *settings)]
    overrides.append(parse_override("draft.num_draft_tokens=16"))
    return load_playbook("lab", overrides, {"model": "/m", "draft": "/d"})


def plan(
    patches: dict[str, Patch], playbook: Playbook, release: str = "0.5.12", old: str | None = None
) -> Plan:
    host = Host(release, old.split() if old is not None else None)
    made = make_plan(PLACE, Wish(playbook=playbook, available=patches, accept_unproven=True), host)  # type: ignore[arg-type]
    assert isinstance(made, Plan)
    return made


def after(flag: str, made: Plan) -> str:
    return made.launch[made.launch.index(flag) + 1]


def test_flags_and_variables_of_the_patch_are_filled_in_and_shown(patches: dict[str, Patch]) -> None:
    made = plan(patches, book())
    assert after("--speculative-disable-batch-threshold", made) == "7"
    assert after("--gate-hysteresis", made) == "n4"
    assert made.env_changes["GATE_LOG"] == "t7"
    assert made.env_changes["A"] == "1"
    assert any("patch gate, made for SGLang 0.5.12" in note for note in made.notes)
    started = next(step for step in made.steps if step.do.op == "server.launch").do.args["launch"]
    assert started["env"]["set"] == {"GATE_LOG": "t7", "A": "1"}


@pytest.mark.parametrize(
    ("settings", "old", "words"),
    [
        (
            ["server.args.enable-lora=true"],
            None,
            "--enable-lora, which the playbook asks for: it has not been",
        ),
        (["server.args.page-size=16"], None, "--page-size, which the playbook asks for: pages are one token"),
        ([], "python -m sglang.launch_server --enable_lora", r"pid 4711\) has --enable-lora"),
        ([], "python -m sglang.launch_server --page-size=16", r"has --page-size"),
        (["server.args.gate-hysteresis=9"], None, "server.args gives gate-hysteresis 9, but patch gate sets"),
        (["env.set.GATE_LOG=no"], None, "needs GATE_LOG=t7 .*, but this instance's is no"),
        (["env.unset=[GATE_LOG]"], None, "env.unset takes it away"),
        (["patches=[gate]", "gate.kind=none"], None, "brings a gate, but the gate is none"),
    ],
)
def test_what_the_patch_does_not_work_with_is_refused_before_anything_changes(
    patches: dict[str, Patch], settings: list[str], old: str | None, words: str
) -> None:
    with pytest.raises(Refused, match=words) as refused:
        plan(patches, book(*settings), old=old)
    assert refused.value.host_state == "nothing was changed"
    assert refused.value.next_command


@pytest.mark.parametrize(
    ("settings", "old"),
    [
        (["server.args.page-size=1"], "python -m sglang.launch_server --page-size 1"),
        (["server.args.enable-lora=false"], "python -m sglang.launch_server --enable-lora"),
    ],
)
def test_another_value_and_a_feature_given_up_on_purpose_are_fine(
    patches: dict[str, Patch], settings: list[str], old: str
) -> None:
    assert plan(patches, book(*settings), old=old).summary["gate"] == "batch-gate"


def test_a_tree_on_a_release_whose_own_gate_would_switch_itself_off_is_refused(
    patches: dict[str, Patch],
) -> None:
    with pytest.raises(Refused, match=r"0.5.18 with topk 4 has no gate that works: .* switches itself off"):
        plan(patches, book(), release="0.5.18")


def test_a_placeholder_that_nothing_fills_in_is_found_when_the_patch_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "gate"
    folder.mkdir()
    (folder / "patch.yaml").write_text(PATCH.replace("t{threshold}", "{treshold}"))
    with pytest.raises(ConfigError, match=r"patch.yaml:5: .*nothing fills in \{treshold\}"):
        load_patches(tmp_path)


VENDOR = b"# of the vendor\n" + BEFORE


def wish(patches: dict[str, Patch], **more: Any) -> Wish:
    return Wish(playbook=book(), available=patches, **more)


@pytest.fixture
def local(patches: dict[str, Patch], tmp_path: Path) -> dict[str, Patch]:
    """With a patch rebased onto the vendor's bytes."""
    host: Any = Host(worker=VENDOR)
    made = rebase_patch(PLACE, host, patches["gate"], tmp_path / "local").patch
    assert made.id.startswith("gate-at-")
    return {**patches, made.id: made}


def test_a_drifted_install_leads_to_a_rebase(patches: dict[str, Patch]) -> None:
    host: Any = Host(worker=VENDOR)
    with pytest.raises(Refused, match="has drifted") as refused:
        make_plan(PLACE, wish(patches, accept_unproven=True), host)
    assert refused.value.next_command.startswith("specops patch rebase gate --host box")
    conflicting: Any = Host(worker=b"STEPS = 4\n")
    with pytest.raises(Refused, match=r"1 have no place\n(.|\n)*<<<<<<< the install, from line 1\nSTEPS = 4"):
        rebase_patch(PLACE, conflicting, patches["gate"], Path("/nowhere"))
    with pytest.raises(Refused, match="made for just these bytes"):
        rebase_patch(PLACE, Host(), patches["gate"], Path("/nowhere"))  # type: ignore[arg-type]


def test_a_rebased_patch_is_taken_for_its_bytes_and_proven_in_full(local: dict[str, Patch]) -> None:
    name = next(name for name in local if name != "gate")
    host: Any = Host(worker=VENDOR)
    with pytest.raises(Refused, match=f"{name} is unproven here") as refused:
        make_plan(PLACE, wish(local), host)
    assert "--accept-unproven" in refused.value.next_command

    made = make_plan(PLACE, wish(local, accept_unproven=True), host)
    assert isinstance(made, Plan)
    assert made.summary["patches"] == [name]
    smoke = next(step for step in made.steps if step.do.op == "smoke").do.args
    assert smoke["checks"] == [f"S{n}" for n in range(8)]
    assert smoke["on_inconclusive"] == {"boundary": "roll_back", "others": "roll_back"}

    checks = [{"id": f"S{n}", "verdict": "pass"} for n in range(8)]
    host.deploys = [{"how": "deployed", "summary": {"patches": [name]}, "checks": checks[:7]}]
    with pytest.raises(Refused, match="unproven"):
        make_plan(PLACE, wish(local), host)
    host.deploys[0]["checks"] = checks
    assert isinstance(make_plan(PLACE, wish(local), host), Plan)
    plain: Any = Host()
    with pytest.raises(
        Refused, match=r"patch gate applies only on SGLang 0.5.12 with EAGLEWorker and topk 4"
    ):
        make_plan(PLACE, wish(local), plain)
    tried = make_plan(PLACE, wish(local, accept_unproven=True), plain)
    assert isinstance(tried, Plan)
    assert tried.summary["patches"] == ["gate"]
    assert any("kept only if S0 to S7 all pass" in note for note in tried.notes)


def test_drop_leads_to_the_bytes_from_before_every_deploy_in_force(patches: dict[str, Patch]) -> None:
    host: Any = Host(worker=AFTER)
    host.installed = [{"path": "/opt/sglang/worker.py", "before": sha256(BEFORE), "after": sha256(AFTER)}]
    made = make_plan(PLACE, wish(patches, drop=True), host)
    assert isinstance(made, Plan)
    swap = next(step for step in made.steps if step.do.op == "files.swap").do.args["files"]
    assert swap == [{"path": "/opt/sglang/worker.py", "before": sha256(AFTER), "after": sha256(BEFORE)}]
    assert (made.summary["gate"], made.summary["patches"]) == ("none", [])
    assert "--speculative-disable-batch-threshold" not in made.launch

    for worker, words in (
        (BEFORE, "nothing to drop"),
        (AFTER, "the bytes from before are not in"),
    ):
        bare: Any = Host(worker=worker)
        with pytest.raises(Refused, match=words):
            make_plan(PLACE, wish(patches, drop=True), bare)


def in_copy(patches: dict[str, Patch], host: Any) -> Plan:
    made = make_plan(
        PLACE, Wish(playbook=book("activation=copy"), available=patches, accept_unproven=True), host
    )
    assert isinstance(made, Plan)
    return made


def test_activation_by_copy_changes_no_file_of_the_install(patches: dict[str, Patch]) -> None:
    made = in_copy(patches, Host(argv=["python", "-m", "sglang.launch_server"]))
    ops = [step.do.op for step in made.steps]
    assert "files.swap" not in ops
    assert ops.index("copy.make") < ops.index("server.rehearse") < ops.index("server.stop")
    assert ops.index("server.await") < ops.index("copy.prove") < ops.index("smoke")
    assert made.summary["copied"] == {"/opt/sglang/worker.py": sha256(AFTER)}
    started = next(step for step in made.steps if step.do.op == "server.launch").do.args["launch"]
    assert started["env"]["modules"] == ["{deploy_dir}/copy"]
    assert made.restores == ("server: pid 4711 (an SGLang server)",)


def test_where_an_install_or_a_copy_cannot_be_used_is_refused(patches: dict[str, Patch]) -> None:
    host: Any = Host()
    host.writable = False
    with pytest.raises(Refused, match="cannot be written by u") as refused:
        make_plan(PLACE, wish(patches, accept_unproven=True), host)
    assert "activation=copy" in refused.value.next_command
    assert in_copy(patches, host)
    patched: Any = Host(worker=AFTER)
    patched.installed = [{"path": "/opt/sglang/old.py", "before": None, "after": sha256(AFTER)}]
    patched.worker = BEFORE
    with pytest.raises(Refused, match="has changed this install in place"):
        in_copy(patches, patched)


def test_the_gate_that_was_measured_to_be_faster_is_taken_where_the_install_fits(
    patches: dict[str, Patch],
) -> None:
    """On a release with a gate of its own; what was measured holds for the bytes that were measured."""
    folder = patches["gate"].folder
    (folder / "patch.yaml").write_text(PATCH.replace("  0.5.12:", "  0.5.18:"))
    measured = load_patches(folder.parent)
    proof = {"release": "0.5.18", "worker": "v2", "topk": 1, "level": "gpu", "date": "2026-11-30"}
    found = {**proof, "bytes": patch_bytes(measured["gate"], "0.5.18"), "to_native": 1.5}
    (folder / "proof.json").write_text(json.dumps({"proofs": [found]}))
    single = ("draft.topk=1", "draft.num_draft_tokens=0")

    def chosen(*settings: str, worker: bytes = BEFORE) -> Plan:
        made = load_playbook(
            "lab", [parse_override(text) for text in settings], {"model": "/m", "draft": "/d"}
        )
        host: Any = Host("0.5.18", worker=worker)
        planned = make_plan(PLACE, Wish(playbook=made, available=measured), host)
        assert isinstance(planned, Plan)
        return planned

    assert chosen(*single).summary["gate"] == "batch-gate"
    assert any("at least 1.5 times as fast as its native gate" in note for note in chosen(*single).notes)
    assert chosen(*single, "gate.kind=native").summary["gate"] == "native"
    assert chosen(*single, worker=VENDOR).summary["gate"] == "native"
