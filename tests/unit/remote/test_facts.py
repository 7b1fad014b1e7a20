from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from specops.connect.payload import BOOTSTRAP, REMOTE, build_zip
from specops.connect.wire import frame
from specops.facts.host import parse_host_facts
from specops.remote import facts, gpus, models

from .servers import free_port, serving


@pytest.fixture
def python(tmp_path: Path) -> str:
    """An install as a virtual environment lays it out, with next to nothing in it."""
    site = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    (site / "sglang").mkdir(parents=True)
    (site / "sglang" / "__init__.py").write_text("raise SystemExit('nothing may import this')\n")
    (site / "sglang" / "_version.py").write_text("__version__ = version = '0.5.18'\n")
    (site / "torch-2.13.0+cpu.dist-info").mkdir()
    (tmp_path / "venv" / "bin").mkdir()
    (tmp_path / "venv" / "bin" / "python").symlink_to(sys.executable)
    return str(tmp_path / "venv" / "bin" / "python")


def params(tmp_path: Path, python: str, port: int) -> dict[str, object]:
    reference = {"state": str(tmp_path / "state"), "port": port, "python": python}
    return {"instance": reference, "files": ["__init__.py", "none.py"], "paths": ["/no/such"], "models": []}


def test_facts_without_a_server(tmp_path: Path, python: str) -> None:
    found = facts.read_facts(params(tmp_path, python, free_port()))
    install = found["install"]
    assert (install["version"], install["torch"], install["writable"]) == ("0.5.18", "2.13.0+cpu", True)
    digest = hashlib.sha256((Path(install["root"]) / "__init__.py").read_bytes()).hexdigest()
    assert install["files"] == {"__init__.py": digest, "none.py": None}
    assert found["paths"] == {"/no/such": None}
    assert found["server"] is None
    assert found["port"] == {"free": True, "holder": None}
    assert not (tmp_path / "state").exists()
    parsed = parse_host_facts(json.loads(json.dumps(found)))
    assert parsed.install is not None
    assert parsed.platform.uid == os.getuid()


@pytest.mark.parametrize("finder", [False, True])
def test_a_checkout_that_is_installed_editable_is_the_install(tmp_path: Path, finder: bool) -> None:
    """By a path in a .pth file, or by a finder that a .pth file imports, as newer tools have it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (site,) = (tmp_path / "venv").glob("lib/python3*/site-packages")
    tree = tmp_path / "checkout" / "python" / "sglang"
    tree.mkdir(parents=True)
    (tree / "__init__.py").write_text("raise SystemExit('nothing may import this')\n")
    (site / "sglang-0.5.13.dev7+gabc.dist-info").mkdir()
    (site / "torch-2.13.0.dist-info").mkdir()
    line = str(tree.parent)
    if finder:
        line = "import editable_finder"
        (site / "editable_finder.py").write_text(f"import sys; sys.path.append({str(tree.parent)!r})\n")
    (site / "editable.pth").write_text(f"{line}\n")
    install = facts.read_install(str(tmp_path / "venv" / "bin" / "python"), ["__init__.py"])
    assert (install["root"], install["version"]) == (str(tree), "0.5.13.dev7+gabc")
    assert (install["torch"], install["writable"]) == ("2.13.0", True)


def test_facts_with_a_server_hold_no_secret(tmp_path: Path, python: str) -> None:
    with serving(tmp_path, "--api-key", "sk-hidden", HF_TOKEN="hf_hidden") as stand:
        found = facts.read_facts(params(tmp_path, python, stand.port))
        assert "hidden" not in json.dumps(found)
        server = parse_host_facts(found).server
        assert server is not None
        assert (server.pid, server.healthy) == (stand.pid, True)
        assert len(server.members) == 2
        assert server.reported["model_path"] == "/m"
        assert server.env["HF_TOKEN"] == "[redacted]"


def test_a_port_held_by_something_else_names_the_holder(tmp_path: Path, python: str) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port = free_port()
        other.bind(("127.0.0.1", port))
        other.listen()
        found = facts.read_facts(params(tmp_path, python, port))
        assert found["server"] is None
        assert found["port"]["free"] is False
        assert found["port"]["holder"]["pid"] == os.getpid()


def test_no_sglang_is_a_fact(tmp_path: Path) -> None:
    found = facts.read_facts(params(tmp_path, sys.executable, free_port()))
    assert found["install"] is None


def test_a_model_is_complete_only_with_every_shard(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    assert models.read_model(str(folder))["exists"] is False
    folder.mkdir()
    assert "config.json" in models.read_model(str(folder))["detail"]
    (folder / "config.json").write_text("{}")
    (folder / "model-1.safetensors").write_text("x")
    (folder / "model-2.safetensors").write_text("")
    shards = {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-3.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    detail = models.read_model(str(folder))["detail"]
    assert detail == "model-2.safetensors is empty; model-3.safetensors is missing"
    for name in shards.values():
        (folder / name).write_text("x")
    assert models.read_model(str(folder))["complete"] is True


def test_gpus_are_read_from_nvidia_smi_or_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho '0, NVIDIA H200, GPU-1, 143771, 143255'\n")
    smi.chmod(0o755)
    monkeypatch.setattr(gpus, "find_smi", lambda: str(smi))
    (gpu,) = gpus.read_gpus()
    assert gpu["name"] == "NVIDIA H200"
    assert gpu["mem_total"] == 143771 * 1024 * 1024
    monkeypatch.setattr(gpus, "find_smi", lambda: None)
    assert gpus.read_gpus() == "none"
    assert gpus.read_users() == {}


def test_an_nvidia_smi_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\nexec sleep 60\n")
    smi.chmod(0o755)
    monkeypatch.setattr(gpus, "find_smi", lambda: str(smi))
    monkeypatch.setattr(gpus, "QUERY_S", 0.2)
    assert gpus.read_gpus() == "none"
    with gpus.STUCK.pop() as stuck:
        assert stuck.wait() == -9


def test_the_agent_reads_facts_isolated_and_without_site(tmp_path: Path, python: str) -> None:
    """From the zip, as on a host: every module and data file must be found in there."""
    request = frame(build_zip(REMOTE), "facts", params(tmp_path, python, free_port()), "n0nce")
    words = [sys.executable, "-I", "-S", "-c", BOOTSTRAP]
    done = subprocess.run(words, input=request, capture_output=True, timeout=60, check=False)
    last = done.stdout.decode().strip().splitlines()[-1]
    assert json.loads(last.partition(" ")[2])["ok"] is True, done.stderr


def test_a_gate_that_sglang_switched_off_is_found_in_the_servers_own_log(tmp_path: Path, python: str) -> None:
    line = "[t] speculative_adaptive disabled: topk=4. Falling back to static speculative params."
    with serving(tmp_path, STANDIN_LOG=json.dumps(["other", line])) as stand:
        server = parse_host_facts(facts.read_facts(params(tmp_path, python, stand.port))).server
        assert server is not None
        assert server.gate_off == line[4:]
    with serving(tmp_path) as stand:
        assert facts.read_facts(params(tmp_path, python, stand.port))["server"]["gate_off"] is None
