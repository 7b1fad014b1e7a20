"""What the lab installs: no GPU build, nothing unpinned, nothing half made taken for whole."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from specops.lab import environment
from specops.lab.environment import CONSTRAINTS, PACKAGES, LabError, choose_torch, refuse_cuda


def report_of(*planned: tuple[str, str]) -> dict[str, Any]:
    """As `pip install --dry-run --report` writes it, format 1."""
    install = [{"metadata": {"name": name, "version": version}} for name, version in planned]
    return {"version": "1", "install": install}


@pytest.mark.parametrize(
    "culprit",
    [("nvidia-cublas-cu12", "12.9.1"), ("torch", "2.13.0+cu129"), ("cuda-bindings", "13.0.3")],
)
def test_gpu_build_is_refused_with_a_way_out(culprit: tuple[str, str]) -> None:
    with pytest.raises(LabError) as refused:
        refuse_cuda(report_of(("filelock", "3.20.0"), ("torch", "2.13.0"), culprit))
    assert " ".join(culprit) in refused.value.message
    assert "SPECOPS_TORCH_INDEX" in refused.value.next_command
    assert "nothing was installed" in refused.value.host_state


def test_cpu_build_is_taken() -> None:
    taken = [("torch", "2.13.0+cpu"), ("sympy", "1.14.0"), ("networkx", "3.6.1")]
    refuse_cuda(report_of(*taken))
    with pytest.raises(LabError, match="nvidia-cublas-cu13"):
        refuse_cuda(report_of(*taken, ("nvidia-cublas-cu13", "1")))


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("venv") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return folder


def write_index(folder: Path, version: str, *requires: str) -> str:
    """A package index on disk that has torch and nothing else."""
    wheel = folder / "torch" / f"torch-{version}-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    info = f"torch-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {name}\n" for name in requires)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n{needs}"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    (wheel.parent / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    return folder.as_uri()


@pytest.fixture
def no_pip_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip as it is on a machine where nobody set it up, and cut off from every network."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "file:///nowhere")
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_pip_settings")
def test_index_of_cpu_builds_need_not_have_what_torch_requires(venv: Path, tmp_path: Path) -> None:
    index = write_index(tmp_path, "2.13.0+cpu", "filelock", "sympy")
    assert index in choose_torch(venv, index)


@pytest.mark.usefixtures("no_pip_settings")
def test_gpu_build_of_an_index_is_refused_before_it_is_installed(venv: Path, tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"torch 2\.13\.0\+cu129"):
        choose_torch(venv, write_index(tmp_path, "2.13.0+cu129"))


@pytest.mark.usefixtures("no_pip_settings")
def test_no_torch_anywhere_says_how_to_name_an_index(venv: Path, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no torch can be had") as refused:
        choose_torch(venv, tmp_path.as_uri())
    assert "SPECOPS_TORCH_INDEX" in refused.value.next_command


def test_every_package_is_pinned_in_the_one_constraints_file() -> None:
    pins = dict(
        line.split("==") for line in CONSTRAINTS.read_text().splitlines() if line and not line.startswith("#")
    )
    pinned = {name.lower().replace("_", "-") for name in pins}
    named = [line for line in PACKAGES.read_text().splitlines() if line and not line.startswith("#")]
    wanted = {name.lower().replace("_", "-") for name in (*named, *environment.UNRESOLVED)}
    assert wanted <= pinned
    assert pins["torch"] == "2.13.0"
    assert not [name for name in pinned if name.startswith(environment.GPU_PACKAGES) or name == "triton"]


def test_complete_environment_is_used_without_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = environment.digest(CONSTRAINTS, PACKAGES, environment.STANDIN)
    folder = tmp_path / "envs" / f"sglang-0.5.18-{digest}"
    package = folder / "lib" / "python3.11" / "site-packages" / "sglang"
    package.mkdir(parents=True)
    (folder / environment.STAMP).write_text("{}")

    def never(argv: object) -> None:
        raise AssertionError(f"started {argv}")

    monkeypatch.setattr(environment, "_call", never)
    found = environment.make_environment(tmp_path, "0.5.18", None, lambda part: None)
    assert found.package == package


def test_interrupted_environment_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = environment.digest(CONSTRAINTS, PACKAGES)
    half = tmp_path / "envs" / f"base-{digest}"
    half.mkdir(parents=True)
    (half / "left-over").touch()
    started: list[object] = []

    def fail(argv: object) -> None:
        started.append(argv)
        raise LabError("the disk is full")

    monkeypatch.setattr(environment, "_run", fail)
    with pytest.raises(LabError, match="disk is full"):
        environment.make_environment(tmp_path, "0.5.18", None, lambda part: None)
    assert started
    assert list((tmp_path / "envs").iterdir()) == []


def test_standin_is_an_ordinary_distribution(tmp_path: Path) -> None:
    environment.install_standin(tmp_path)
    program = (
        "import json, sys; from importlib.metadata import distributions;"
        "found = [p for d in distributions(path=[sys.argv[1]]) for p in d.entry_points];"
        "sys.path.insert(0, sys.argv[1]);"
        "print(json.dumps([[p.group, callable(p.load())] for p in found]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], check=True, capture_output=True, text=True
    )
    assert json.loads(done.stdout) == [["sglang.srt.plugins", True]]
