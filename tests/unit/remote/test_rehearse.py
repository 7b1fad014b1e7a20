"""Rehearsal on a small package that is laid out as SGLang is; tests/sglang has the real one."""

from __future__ import annotations

import _ctypes
import hashlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specops.remote import gpus, rehearse
from specops.remote.context import Context, OpFailed
from specops.remote.flags import name_hints

from .servers import deploying

ARGS = """
class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--model-path", required=True)
        parser.add_argument("--cuda-graph-max-bs-decode", type=int)
        parser.add_argument("--device")
        parser.add_argument("--schedule-policy", choices=["fcfs", "lpm"])
"""


@pytest.fixture
def install(tmp_path: Path) -> Path:
    root = tmp_path / "site-packages" / "sglang"
    (root / "srt").mkdir(parents=True)
    (root / "__init__.py").write_text("__version__ = '0.5.99'\n")
    (root / "version.py").write_text("__version__ = '0.5.99'\n")
    (root / "srt" / "__init__.py").write_text("")
    (root / "srt" / "server_args.py").write_text(ARGS)
    (root / "srt" / "worker.py").write_text("VALUE = 1\n")
    return root


class Rehearsal:
    def __init__(self, ctx: Context, root: Path) -> None:
        self.ctx, self.root = ctx, root

    def __call__(self, source: str | None, *words: str, cwd: str = "/", **args: Any) -> dict[str, Any]:
        files = []
        if source is not None:
            digest = hashlib.sha256(source.encode()).hexdigest()
            self.ctx.store_dir.mkdir(parents=True, exist_ok=True)
            (self.ctx.store_dir / digest).write_text(source)
            files = [{"path": str(self.root / "srt" / "worker.py"), "sha256": digest}]
        launch = {
            "argv": [sys.executable, "-m", "sglang.launch_server", "--model-path", "/m", *words],
            "cwd": cwd,
            "env": {"base": "login", "set": {"PYTHONPATH": str(self.root.parent)}},
            "port": 31299,
            "cookie": "d1",
        }
        modules = ["sglang.srt.worker"] if source is not None else []
        return rehearse.rehearse(self.ctx, {"files": files, "launch": launch, "modules": modules, **args})


@pytest.fixture
def run(ctx: Context, install: Path) -> Iterator[Rehearsal]:
    before = {path: path.read_bytes() for path in install.rglob("*") if path.is_file()}
    with deploying(ctx, install) as (on, _):
        yield Rehearsal(on, install)
    assert {path: path.read_bytes() for path in install.rglob("*") if path.is_file()} == before
    assert not (ctx.deploy_dir / "rehearsal").exists()


def test_a_good_change_is_imported_from_the_copy(run: Rehearsal) -> None:
    source = f"import os\nassert os.path.dirname(__file__) != {str(run.root / 'srt')!r}\n"
    facts = run(source, "--cuda-graph-max-bs-decode", "8")
    assert facts["modules"] == {"sglang.srt.worker": "sglang/srt/worker.py"}
    assert facts["arguments"] == "2 accepted"
    assert facts["version"] == "0.5.99"


def test_an_import_that_needs_a_gpu_gets_one_and_all_addresses(
    run: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "find_smi", lambda: "/usr/bin/nvidia-smi")
    source = "import os, resource\nassert 'CUDA_VISIBLE_DEVICES' not in os.environ\n"
    source += "assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY\n"
    assert run(source)["modules"] == {"sglang.srt.worker": "sglang/srt/worker.py"}


TORCH = "__version__ = '2.13.0'\nclass version:\n    cuda = {cuda!r}\n    hip = None\n"
OLD = {"version": "550.54.15", "cuda": "12.4", "capability": "9.0"}


def test_torch_is_held_against_the_driver_and_the_kernels_are_loaded(
    run: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = run.root.parent
    (site / "torch.py").write_text(TORCH.format(cuda=None))
    assert run(None)["runtime"] == {"torch": "2.13.0", "cuda": None}
    monkeypatch.setattr(gpus, "read_stack", lambda: OLD)
    with pytest.raises(OpFailed, match=r"CPU build: it cannot use this host's GPUs .driver 550"):
        run(None)
    assert run(None, "--device", "cpu")["kernel"] is None
    (site / "torch.py").write_text(TORCH.format(cuda="13.0"))
    with pytest.raises(OpFailed, match=r"built for CUDA 13\.0: driver 550\.54\.15 runs CUDA 12\.4") as error:
        run(None)
    assert "install a driver for CUDA 13" in (error.value.next_command or "")
    (site / "torch.py").write_text(TORCH.format(cuda="12.8"))
    with pytest.raises(OpFailed, match="sgl_kernel is not installed"):
        run(None)
    library = site / "sgl_kernel" / "sm90" / "common_ops.abi3.so"
    library.parent.mkdir(parents=True)
    (site / "sgl_kernel" / "__init__.py").write_text("raise ImportError('no')\n")
    with pytest.raises(OpFailed, match=r"no library for this GPU .sm90"):
        run(None)
    library.write_bytes(b"half a download")
    with pytest.raises(OpFailed, match=r"sm90/common_ops: .*(invalid ELF|file too short)"):
        run(None)
    shutil.copy(_ctypes.__file__, library)
    facts = run(None)
    assert facts["kernel"] == "sm90/common_ops.abi3.so"
    assert facts["runtime"]["driver_cuda"] == "12.4"


def test_a_name_of_another_release_is_told() -> None:
    assert name_hints("0.5.9")["--speculative-adaptive"] == "it exists since 0.5.11"
    assert name_hints("0.5.9")["--cuda-graph-bs-decode"] == "it is --cuda-graph-bs in 0.5.9"
    assert "--cuda-graph-bs-decode" not in name_hints("0.5.15.post1")


@pytest.mark.parametrize(
    ("source", "words", "message"),
    [
        ("import no_such_module\n", (), "import of sglang.srt.worker: ModuleNotFoundError"),
        ("def f(:\n", (), "import of sglang.srt.worker: SyntaxError"),
        (None, ("--cuda-graph-max-bs-decod", "8"), "no argument --cuda-graph-max-bs-decod .did you mean"),
        (
            None,
            ("--cuda-graph-max-bs", "8"),
            "no argument --cuda-graph-max-bs .it is --cuda-graph-max-bs-decode in",
        ),
        (None, ("--cuda-graph-max-bs-decode", "x"), "invalid int value"),
        (None, ("--schedule-policy", "none"), "invalid choice"),
        ("import os; os._exit(7)\n", (), "ended with code 7"),
        ("import os; os.kill(os.getpid(), 9)\n", (), "ended with code -9"),
    ],
)
def test_what_would_not_start_costs_no_downtime(
    run: Rehearsal, source: str | None, words: tuple[str, ...], message: str
) -> None:
    with pytest.raises(OpFailed, match=message) as error:
        run(source, *words)
    assert error.value.code == "rehearsal_failed"
    assert error.value.host_state == "the old server was not touched"


def test_an_import_that_hangs_ends_by_its_deadline(run: Rehearsal) -> None:
    with pytest.raises(OpFailed, match=r"import of sglang\.srt\.worker: not done after 2 s"):
        run("import time; time.sleep(60)\n", deadline_s=2)


def test_a_folder_that_shadows_the_install_is_seen(run: Rehearsal, tmp_path: Path) -> None:
    shadow = tmp_path / "checkout"
    (shadow / "sglang").mkdir(parents=True)
    (shadow / "sglang" / "__init__.py").write_text("")
    with pytest.raises(OpFailed, match=f"finds {shadow}/sglang, not the install"):
        run(None, cwd=str(shadow))
