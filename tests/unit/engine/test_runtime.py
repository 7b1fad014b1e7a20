"""Driver, torch and kernel wheel: what cannot start is refused by name and number before anything stops."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specops.config.playbook import Playbook, load_playbook
from specops.engine.check import GIB
from specops.engine.room import check_room
from specops.errors import Refused
from specops.remote import gpus, runtime

from .test_room import seen

OLD = {"version": "550.54.15", "cuda": "12.4", "capability": "9.0"}
NEW = {"version": "580.65.06", "cuda": "13.0", "capability": "9.0"}
CUDA13 = {"version": "2.13.0+cu130", "cuda": "13.0", "hip": None}
CPU = {"version": "2.13.0+cpu", "cuda": None, "hip": None}
KERNEL = {"version": "0.4.6.post1", "libraries": ["sm100", "sm90"]}
GPU = {"index": 0, "name": "H200", "uuid": "GPU-1", "mem_total": 140 * GIB, "mem_free": 138 * GIB}


@pytest.fixture
def book() -> Playbook:
    found = load_playbook("eagle3-gated", (), {})
    return replace(found, server=replace(found.server, tp=1))


def said(book: Playbook, **runtime: Any) -> dict[str, tuple[str, str]]:
    whole = {"torch": CUDA13, "kernel": KERNEL, "demanded": "0.4.6.post1", "driver": NEW, **runtime}
    found = seen(book, gpus=[GPU] if whole["driver"] else "none", runtime=whole)
    return {check.name: (check.verdict, check.saw) for check in check_room(found, book, "box")}


@pytest.mark.parametrize(
    ("changes", "words", "remedy"),
    [
        (
            {"driver": OLD},
            r"torch 2\.13\.0\+cu130, built for CUDA 13\.0; driver 550\.54\.15 runs CUDA 12\.4 at most",
            "install a driver for CUDA 13, or the torch .* built for CUDA 12",
        ),
        ({"torch": CPU}, r"CPU build; driver 580\.65\.06 .*cannot use this host's GPUs", "device=cpu"),
        (
            {"kernel": {**KERNEL, "version": "0.4.5"}},
            r"0\.4\.5 .*0\.4\.6\.post1 or newer",
            r"sglang-kernel==0\.4\.6\.post1",
        ),
        (
            {"kernel": {**KERNEL, "version": "0.3.16"}, "demanded": "0.3.16.post5"},
            r"0\.3\.16 .*0\.3\.16\.post5 or newer",
            r"sgl-kernel==0\.3\.16\.post5",
        ),
        ({"kernel": {**KERNEL, "libraries": ["sm100"]}}, "no library sm90 for this GPU .9.0.", "pip install"),
    ],
)
def test_what_cannot_start_on_this_box_is_refused(
    book: Playbook, changes: dict[str, Any], words: str, remedy: str
) -> None:
    with pytest.raises(Refused, match=words) as error:
        said(book, **changes)
    assert re.search(remedy, error.value.next_command or "")


def test_what_fits_or_is_not_used_passes_and_says_what_it_saw(book: Playbook) -> None:
    fits = said(book)
    assert fits["driver and torch"][0] == fits["kernel wheel"][0] == "ok"
    assert "driver 580.65.06 runs CUDA 13.0" in fits["driver and torch"][1]
    # a driver runs every CUDA below its own, and each of its own major version
    assert said(book, driver=NEW, torch={**CUDA13, "cuda": "12.8"})["driver and torch"][0] == "ok"
    assert said(book, driver=OLD, torch={**CUDA13, "cuda": "12.9"})["driver and torch"][0] == "ok"
    on_cpu = said(book, torch=CPU, driver=None, kernel=None)
    assert on_cpu["torch"] == ("ok", "torch 2.13.0+cpu, CPU build; no NVIDIA driver")
    asked = replace(book, server=replace(book.server, args={**book.server.args, "device": "cpu"}))
    assert said(asked, torch=CPU, kernel=None)["torch"][1].endswith("driver 580.65.06 is not used")
    # it may lie where only the server's own environment leads
    assert said(book, kernel=None)["kernel wheel"][0] == "warn"
    skip = replace(book, env=replace(book.env, set={"SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK": "1"}))
    assert said(skip, kernel={**KERNEL, "version": "0.4.5"})["kernel wheel"][0] == "ok"
    # nvidia's forward compatibility is told by loading it, which is the rehearsal's part
    env = replace(book, env=replace(book.env, set={"LD_LIBRARY_PATH": "/usr/local/cuda/compat"}))
    assert said(env, driver=OLD)["driver and torch"][0] == "warn"


def test_versions_are_read_from_files_and_from_nvidia_smi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "lib" / "python3.12" / "site-packages"
    engine = site / "sglang" / "srt" / "entrypoints" / "engine.py"
    wheel = site / "sglang_kernel-0.4.7.dist-info"
    for folder in (engine.parent, site / "torch", wheel):
        folder.mkdir(parents=True)
    engine.write_text('assert_pkg_version(\n    "sglang-kernel",\n    "0.4.6.post1",\n    "Please")\n')
    (site / "torch" / "version.py").write_text(
        "from typing import Optional\n__version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\n"
        "hip: Optional[str] = None\n"
    )
    (wheel / "RECORD").write_text(
        "sgl_kernel/flash_ops.abi3.so,sha256=x,1\nsgl_kernel/sm90/common_ops.abi3.so,sha256=x,1\n"
        "sgl_kernel/sm100/common_ops.abi3.so,sha256=x,1\n"
    )
    smi = tmp_path / "nvidia-smi"
    smi.write_text(
        "#!/bin/sh\ncase $1 in -q) echo 'CUDA Version                              : 12.4';;\n"
        "*) echo '550.54.15, 9.0'; echo '550.54.15, 10.0';; esac\n"
    )
    smi.chmod(0o755)
    monkeypatch.setattr(gpus, "find_smi", lambda: str(smi))
    assert runtime.read_runtime(str(site / "sglang"), str(tmp_path / "bin" / "python")) == {
        "torch": CUDA13,
        "kernel": {"version": "0.4.7", "libraries": ["sm100", "sm90"]},
        "demanded": "0.4.6.post1",
        "driver": OLD,
    }
    monkeypatch.setattr(gpus, "find_smi", lambda: None)
    assert runtime.read_runtime("/none/sglang", "/none/bin/python") == dict.fromkeys(
        ("torch", "kernel", "demanded", "driver")
    )
