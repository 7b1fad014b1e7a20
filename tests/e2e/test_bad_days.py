"""Bad input and bad days: what is wrong, where, what is true on the host, and what to type next."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from specops.lab.lab import LabState
from tests.e2e.command import Ran, specops
from tests.e2e.server import owner_of_port
from tests.e2e.trees import digest_tree

PATCHES = str(Path(__file__).parents[1] / "patches")
DEPLOY = ("deploy", "--host", "lab", "--threshold", "5", "--yes")


def check(ran: Ran, code: int, *words: str) -> None:
    assert ran.code == code, ran.err + ran.out
    assert "Traceback" not in ran.err
    for word in words:
        assert word in ran.err, ran.err


@pytest.fixture
def untouched(lab: LabState) -> Iterator[LabState]:
    """Whatever happens: the same server, the same bytes."""
    server, before = owner_of_port(lab.port), digest_tree(Path(lab.package))
    yield lab
    assert owner_of_port(lab.port) == server
    assert digest_tree(Path(lab.package)) == before


def inventory(tmp_path: Path, lab: LabState, **changes: object) -> str:
    raw = json.loads(lab.inventory.read_text())["hosts"]["lab"]
    instance = {**raw["instances"][0], **{k: v for k, v in changes.items() if k == "port_served"}}
    if "port_served" in instance:
        instance["port"] = instance.pop("port_served")
    host = {**raw, **{k: v for k, v in changes.items() if k != "port_served"}, "instances": [instance]}
    path = tmp_path / "inventory.yaml"
    path.write_text(json.dumps({"hosts": {"box": host}}))
    return str(path)


def on_box(tmp_path: Path, lab: LabState, *more: str, **changes: object) -> Ran:
    where = ("--inventory", inventory(tmp_path, lab, **changes), "--host", "box")
    return specops("deploy", *where, "--yes", *more)


def test_unknown_host_is_named_with_the_nearest(untouched: LabState) -> None:
    check(specops("deploy", "--host", "labb", "--yes"), 2, "labb", "lab")


@pytest.mark.parametrize("threshold", ["0", "-1", "five", "17"])
def test_threshold_that_cannot_be(untouched: LabState, threshold: str) -> None:
    ran = specops("deploy", "--host", "lab", f"--threshold={threshold}", "--yes")
    assert ran.code in (2, 13), ran.err
    assert threshold in ran.err


def test_unreachable_host(untouched: LabState, tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        check(on_box(tmp_path, untouched, port=port), 12, "127.0.0.1", str(port))


def test_wrong_user_key(untouched: LabState, tmp_path: Path) -> None:
    host_key = str(Path(untouched.identity_file).with_name("host_key"))
    check(on_box(tmp_path, untouched, identity_file=host_key), 12)


def test_changed_host_key_is_refused_with_its_fingerprint(untouched: LabState, tmp_path: Path) -> None:
    other = Path(untouched.identity_file).with_suffix(".pub").read_text()
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{untouched.ssh_port} {other}")
    check(on_box(tmp_path, untouched, known_hosts=str(known)), 12, "SHA256:")


def test_no_sglang_at_that_python(untouched: LabState, tmp_path: Path) -> None:
    check(
        on_box(tmp_path, untouched, python="/usr/bin/python3"), 13, "/usr/bin/python3", "nothing was changed"
    )


def test_port_of_somebody_else(untouched: LabState, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        check(on_box(tmp_path, untouched, port_served=port), 13, "no SGLang server", "pid")


def test_missing_model(untouched: LabState) -> None:
    ran = specops(*DEPLOY, "--set", "model.path=/nowhere/model")
    check(ran, 13, "/nowhere/model", "nothing was changed")


def test_native_gate_with_topk_above_1(untouched: LabState) -> None:
    ran = specops(*DEPLOY, "--gate", "native", "--set", "draft.topk=4", "--set", "draft.num_draft_tokens=16")
    check(ran, 13, "topk 4", "nothing was changed")


def test_flag_that_the_release_does_not_have(untouched: LabState) -> None:
    ran = specops(*DEPLOY, "--set", "server.args.no-such-flag=true")
    check(ran, 13, "no-such-flag")
    assert specops("status", "--host", "lab").code == 0


def test_import_broken_in_a_lazily_loaded_worker(untouched: LabState) -> None:
    ran = specops(*DEPLOY, "--patches", PATCHES, "--patch", "breaks-lazy-import")
    check(ran, 13, "eagle_worker_v2")


def test_drifted_file_is_refused(lab: LabState) -> None:
    path = next(Path(lab.package).rglob("eagle_worker_v2.py"))
    pristine = path.read_bytes()
    changed = path.with_suffix(".new")
    changed.write_bytes(pristine + b"\n# a hand-made change\n")
    changed.replace(path)
    try:
        ran = specops(*DEPLOY, "--patches", PATCHES, "--patch", "harmless")
        check(ran, 13, "drifted", "eagle_worker_v2.py", "nothing was changed")
    finally:
        changed.write_bytes(pristine)
        changed.replace(path)
