"""Preflight with numbers: what costs a load is refused before, what may be right is only said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specops.config.playbook import Playbook, load_playbook
from specops.engine.check import GIB
from specops.engine.place import Place
from specops.engine.preflight import require_models
from specops.engine.room import check_room, derived_ports
from specops.errors import Refused
from specops.facts.host import HostFacts
from specops.facts.platform import parse_platform
from specops.remote import models, room
from specops.remote.facts import read_hub
from tests.unit.remote.servers import free_port, serving

from .test_preflight import SERVER, facts

TARGET = {"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "vocab_size": 128256}
DRAFT = {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 2048, "draft_vocab_size": 32000}
GPU = {"index": 0, "name": "H200", "uuid": "GPU-1", "mem_total": 140 * GIB, "mem_free": 30 * GIB}


@pytest.fixture
def playbook() -> Playbook:
    return load_playbook("eagle3-gated", (), {})


def seen(book: Playbook, *, draft: dict[str, Any] | None = None, **changes: Any) -> HostFacts:
    assert book.draft is not None
    whole = {"exists": True, "complete": True, "detail": "", "files": 4, "tokenizer": True}
    found = {
        book.model.path: {**whole, "bytes": 16 * GIB, "config": TARGET},
        book.draft.path: {**whole, "bytes": GIB, "config": draft or DRAFT},
    }
    space = {
        "disks": {"/s": {"free": 90 * GIB, "total": 99 * GIB}},
        "shm": {"free": 8 * GIB, "total": 8 * GIB},
    }
    return facts(**{"models": found, "room": {**space, **changes.pop("room", {})}, **changes})


def said(found: HostFacts, book: Playbook) -> dict[str, tuple[str, str]]:
    return {check.name: (check.verdict, check.saw) for check in check_room(found, book, "box")}


def test_every_check_says_what_it_saw(playbook: Playbook) -> None:
    book = replace(playbook, server=replace(playbook.server, tp=1, mem_fraction_static=0.8))
    held = {**GPU, "mem_held": 108 * GIB}
    checks = said(seen(book, gpus=[held], server={**SERVER, "members": [7]}), book)
    assert checks["model"] == ("ok", "4 weight files, 16.0 GiB, all there")
    # 17 GiB of weights against 0.8 of what is free once the old server gave its part back
    assert checks["weights on gpu"][0] == "ok"
    assert "93.4 GiB for the KV cache" in checks["weights on gpu"][1]
    assert checks["gpu memory"] == ("ok", "gpu 0: 138.0 GiB of 140.0 GiB free once 108.0 GiB are given back")
    assert checks["draft vocabulary"] == ("ok", "32000 words of the target's 128256")
    assert checks["draft against target"][0] == "ok"
    assert checks["compilers"][0] == "ok"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"gpus": [{**GPU, "mem_total": 24 * GIB, "mem_free": 14 * GIB}]},
            "nothing is left for the KV cache",
        ),
        ({"room": {"disks": {"/s": {"free": GIB, "total": GIB}}}}, "1.0 GiB free for /s; 2.0 GiB are needed"),
        ({"room": {"ports": {"29500": {"pids": [9], "line": "pid 9 of bob: nginx"}}}}, "pid 9 of bob: nginx"),
    ],
)
def test_what_would_cost_a_load_is_refused(playbook: Playbook, changes: dict[str, Any], words: str) -> None:
    book = replace(playbook, server=replace(playbook.server, tp=1))
    with pytest.raises(Refused, match=words):
        check_room(seen(book, **changes), book, "box")


def test_whoever_else_is_on_the_gpus_is_named_and_a_lost_rank_is_refused(playbook: Playbook) -> None:
    book = replace(playbook, server=replace(playbook.server, tp=1))
    other = {"pid": 77, "start_ticks": 5, "line": "pid 77 of bob: python train.py", "bytes": 3 * GIB}
    found = said(seen(book, gpus=[GPU], holders=[other]), book)["gpu holder"]
    assert found[0] == "warn"
    assert found[1].startswith("pid 77 of bob: python train.py holds 3.0 GiB of its GPUs")
    with pytest.raises(Refused, match="gpu holder: pid 77") as error:
        check_room(seen(book, gpus=[GPU], holders=[{**other, "lost": True}]), book, "box")
    assert error.value.next_command == "end it if it is yours: kill 77"


def test_ranks_without_gpus_are_refused_and_no_gpus_at_all_are_not(playbook: Playbook) -> None:
    book = replace(playbook, server=replace(playbook.server, tp=8))
    with pytest.raises(Refused, match="1 there, 8 needed"):
        check_room(seen(book, gpus=[GPU]), book, "box")
    assert "gpus" not in said(seen(book), book)
    assert (
        said(seen(book, room={"shm": {"free": 64 << 20, "total": 64 << 20}}), book)["shared memory"][0]
        == "warn"
    )


def test_a_draft_of_another_size_or_in_other_hands_is_only_said(playbook: Playbook) -> None:
    book = replace(playbook, server=replace(playbook.server, tp=1))
    odd = {**DRAFT, "target_hidden_size": 5120}
    checks = said(seen(book, draft=odd, gpus=[{**GPU, "mem_free": 100 * GIB}]), book)
    assert checks["draft against target"][0] == "warn"
    assert "made for 5120" in checks["draft against target"][1]
    assert checks["gpu memory"][0] == "warn"
    assert "40.0 GiB are in other hands" in checks["gpu memory"][1]


def test_the_ports_of_a_launch_are_looked_at_on_the_host(tmp_path: Path) -> None:
    with serving(tmp_path) as stand:
        free = free_port()
        args = {"nccl-port": stand.port, "dist-init-addr": f"127.0.0.1:{free}", "tokenizer-path": "x"}
        ports = derived_ports(args, stand.port + 1)
        assert ports == (stand.port, free)
        found = room.read_room([str(tmp_path / "not" / "yet")], ports, "/usr/bin/python3")
        assert found["ports"][str(stand.port)]["pids"] == [stand.pid]
        assert found["ports"][str(free)] is None
        assert found["disks"][str(tmp_path / "not" / "yet")]["free"] > 0


@pytest.mark.parametrize(
    ("args", "port", "ports"),
    [
        ({}, 30000, ()),
        ({"enable-dp-attention": True}, 30000, tuple(range(30233, 30239))),
        ({"enable-dp-attention": True}, 65400, tuple(range(65167, 65173))),
        ({"enable-dp-attention": True, "dist-init-addr": "box:5000"}, 30000, tuple(range(5000, 5006))),
        ({"smg-grpc-mode": True}, 30000, (40000,)),
        ({"smg-grpc-mode": True, "grpc-port": 50051, "enable-dp-attention": False}, 30000, (50051,)),
    ],
)
def test_ports_that_sglang_counts_up_from_others_are_looked_at_too(
    args: dict[str, Any], port: int, ports: tuple[int, ...]
) -> None:
    assert derived_ports(args, port) == ports


def test_a_model_of_the_hub_is_looked_for_in_its_cache_and_never_refused(
    tmp_path: Path, playbook: Playbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    book = replace(
        playbook,
        model=replace(playbook.model, path="org/target"),
        server=replace(playbook.server, tp=1, args={}),
    )

    def check() -> tuple[str, str]:
        found = facts(models={"org/target": models.read_model("org/target")})
        require_models(found, "box")
        return said(found, book)["model"]

    assert check()[0] == "warn"
    assert check()[1] == f"org/target is not in the hub's cache {tmp_path}: SGLang downloads it at its start"
    snapshot = tmp_path / "models--org--target" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(TARGET))
    verdict, saw = check()
    assert (verdict, "no weights" in saw) == ("warn", True)
    (snapshot / "model.safetensors").write_bytes(b"123")
    (snapshot / "tokenizer.json").write_text("{}")
    assert check() == ("ok", "1 weight files, 0 MiB, all there")


def test_the_hub_is_the_one_that_the_launch_will_have(tmp_path: Path, playbook: Playbook) -> None:
    """The old server's environment, what the inventory and the playbook set over it, and what they unset."""
    snapshots = tmp_path / "old" / "hub" / "models--org--target" / "snapshots"
    for name in ("abc", "def"):
        (snapshots / name).mkdir(parents=True)
        (snapshots / name / "config.json").write_text(json.dumps(TARGET))
        (snapshots / name / "model.safetensors").write_bytes(b"123")
    (snapshots.parent / "refs").mkdir()
    (snapshots.parent / "refs" / "main").write_text("abc\n")
    place = Place(host="box", port=1, python="p", state="s", env={"HF_TOKEN": "hf_x", "HF_HUB_OFFLINE": "1"})

    def look(pid: int | None, **env: str) -> HostFacts:
        book = replace(playbook, env=replace(playbook.env, set=env, unset=("HF_HUB_CACHE", "HTTP_PROXY")))
        hub = place.hub(book)
        assert "hf_x" not in str(hub)
        found = read_hub({"pid": pid} if pid else None, hub)
        return facts(models={"org/target": models.read_model("org/target", found)})

    with serving(tmp_path, HF_HOME=str(tmp_path / "old"), HF_HUB_CACHE="/elsewhere") as stand:
        model = look(stand.pid).models["org/target"]
        assert (model.complete, model.folder) == (True, str(snapshots / "abc"))
        require_models(look(stand.pid), "box")
        other = look(stand.pid, HF_HOME=str(tmp_path / "new"))
    for gone in (other, look(None)):
        with pytest.raises(Refused, match=r"org/target is not there .*may not fetch it: .* HF_HUB_OFFLINE"):
            require_models(gone, "box")
    assert other.models["org/target"].cache == str(tmp_path / "new" / "hub")
    require_models(look(None, HF_HUB_OFFLINE="0"), "box")


def test_a_model_is_the_shards_of_its_index(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"text_config": {"hidden_size": 8}, "architectures": ["X"]}')
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "a.safetensors").write_bytes(b"12345")
    (tmp_path / "b.safetensors").write_bytes(b"123")
    (tmp_path / "consolidated.safetensors").write_bytes(b"not of the index")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}')
    found = models.read_model(str(tmp_path))
    assert (found["complete"], found["bytes"], found["files"], found["tokenizer"]) == (True, 8, 2, True)
    assert found["config"]["hidden_size"] == 8
    (tmp_path / "b.safetensors").write_bytes(b"")
    assert models.read_model(str(tmp_path))["detail"] == "b.safetensors is empty"
    index.write_text("{")
    assert "is damaged" in models.read_model(str(tmp_path))["detail"]


@pytest.mark.parametrize(
    ("scope", "logout", "words"),
    [
        ("none", {"systemd": True, "kills": True}, "KillUserProcesses ends what the sessions of ops leave"),
        ("user", {"systemd": False}, "systemd does not run this machine"),
        ("user", {"systemd": True}, "ends with its last session"),
        ("system", {"systemd": True}, "may not start a system scope"),
    ],
)
def test_a_server_that_would_not_outlive_its_session_is_refused(
    playbook: Playbook, scope: Any, logout: dict[str, Any], words: str
) -> None:
    book = replace(playbook, server=replace(playbook.server, tp=1, scope=scope))
    found = seen(book)
    platform = parse_platform({**found.raw["platform"], "logout": logout})
    with pytest.raises(Refused, match=words):
        check_room(replace(found, platform=platform), book, "box")
    lingering = replace(platform, systemd=True, linger=True, kills_at_logout=False, uid=0)
    assert said(replace(found, platform=lingering), book)["logout"] == ("ok", "the server outlives it")
