"""A server that is launched from a copy: the install stays as it is, every process says what it loaded."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specops.remote import activation, launch, procs
from specops.remote.context import Context, OpFailed

from .servers import await_true, deploying, free_port

SERVER = """
import os, subprocess, sys, time
import sglang.worker
env = {**os.environ, **({"PYTHONPATH": os.environ["STRANGE"]} if "STRANGE" in os.environ else {})}
code = "import sglang.worker, time; time.sleep(600)"
subprocess.Popen(["sglang::scheduler_TP0", "-c", code], executable=sys.executable, env=env)
time.sleep(600)
"""
AFTER = b"VALUE = 2\n"
DIGEST = hashlib.sha256(AFTER).hexdigest()


@pytest.fixture
def install(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "site-packages" / "sglang"
    (root / "srt").mkdir(parents=True)
    (root / "__init__.py").write_text("from __future__ import annotations\n")
    (root / "srt" / "__init__.py").write_text("")
    (root / "worker.py").write_text("VALUE = 1\n")
    (root / "launch_server.py").write_text(SERVER)
    for folder in (root / "srt", root, root.parent):
        folder.chmod(0o555)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    yield root
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    for folder in (root.parent, root, root / "srt"):
        folder.chmod(0o755)


@pytest.fixture
def at(ctx: Context, install: Path) -> Iterator[Context]:
    ctx.store_dir.mkdir(parents=True)
    (ctx.store_dir / DIGEST).write_bytes(AFTER)
    with deploying(ctx, install) as (on, _):
        yield on


def files(install: Path) -> list[dict[str, Any]]:
    return [{"path": str(install / "worker.py"), "sha256": DIGEST}]


def start(at: Context, notes: int, **env: str) -> None:
    """From the copy; until that many processes have left their note."""
    quiet = {"PYTHONDONTWRITEBYTECODE": "1", **env}
    spec = {
        "argv": [sys.executable, "-S", "-m", "sglang.launch_server"],
        "cwd": "/",
        "env": {"base": "login", "set": quiet, "modules": ["{deploy_dir}/copy"]},
        "port": free_port(),
        "cookie": "d1",
    }
    launch.launch(at, {"launch": spec})
    await_true(lambda: len(list((at.deploy_dir / "loaded").iterdir())) >= notes)


def carriers() -> set[int]:
    return procs.carriers(procs.scan_processes(), "d1")


def test_every_process_has_loaded_the_copy(at: Context, install: Path) -> None:
    made = activation.make(at, {"files": files(install)})
    copy = Path(made["copy"])
    assert (copy / "worker.py").read_bytes() == AFTER
    start(at, 2)
    proven = activation.prove(at, {"files": files(install), "cookie": "d1"})
    assert {rank["title"] for rank in proven["ranks"]} == {"launcher", "sglang::scheduler_TP0"}
    assert {rank["file"] for rank in proven["ranks"]} == {str(copy / "__init__.py")}
    (copy / "worker.py").write_bytes(b"VALUE = 3\n")
    with pytest.raises(OpFailed, match="does not hold what was staged"):
        activation.prove(at, {"files": files(install), "cookie": "d1"})
    for _ in range(2):
        activation.remove(at, {})
    assert not copy.exists()


def test_a_rank_that_loads_another_package_is_found(at: Context, install: Path) -> None:
    activation.make(at, {"files": files(install)})
    start(at, 1, STRANGE=str(install.parent))
    await_true(lambda: any(procs.read_argv(pid)[:1] == ["sglang::scheduler_TP0"] for pid in carriers()))
    with pytest.raises(OpFailed, match=r"sglang::scheduler_TP0.* \(no word of it\)") as failed:
        activation.prove(at, {"files": files(install), "cookie": "d1"})
    assert failed.value.code == "not_the_copy"


def test_nothing_that_runs_is_no_proof(at: Context, install: Path) -> None:
    activation.make(at, {"files": files(install)})
    await_true(lambda: not carriers())  # of the test before, on a slow machine
    with pytest.raises(OpFailed, match="none was found"):
        activation.prove(at, {"files": files(install), "cookie": "d1"})


def test_a_copy_of_an_earlier_deploy_is_not_left_on_the_module_path(at: Context) -> None:
    earlier = "/state/m/instances/30000-ab/deploys/d0/copy"
    kept = {"env": {"PYTHONPATH": f"{earlier}:/opt/plugins"}}
    assert launch.build_env({"modules": ["/new"]}, kept, str)["PYTHONPATH"] == "/new:/opt/plugins"
    assert launch.build_env({}, kept, str)["PYTHONPATH"] == "/opt/plugins"
    assert "PYTHONPATH" not in launch.build_env({}, {"env": {"PYTHONPATH": earlier}}, str)
