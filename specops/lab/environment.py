"""The lab's environments: one with all that SGLang imports, and a cheap copy of it for each release."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specops.errors import SpecopsError

HERE = Path(__file__).parent
CONSTRAINTS = HERE / "constraints.txt"
PACKAGES = HERE / "packages.txt"
STANDIN = HERE / "standin"
STAMP = "specops-lab.json"
"""Written last: an environment without it was interrupted and is made anew."""
WHEEL_INDEX = "https://download.pytorch.org/whl/cpu"
INDEX_VARIABLE = "SPECOPS_TORCH_INDEX"
UNRESOLVED = ("xgrammar", "compressed-tensors")
"""Installed without their requirements, which ask for CUDA builds."""
GPU_PACKAGES = ("nvidia-", "cuda-", "pytorch-triton")

Advance = Callable[[float], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    python: Path
    package: Path
    """The install's `sglang` folder."""


class LabError(SpecopsError):
    """The lab could not be made or did not come up."""


def make_environment(home: Path, release: str, index: str | None, advance: Advance) -> Environment:
    """The environment of one release below `home/envs`: the one that is there if its inputs are the same.

    Needs the network only where something is missing. Raises LabError, and leaves nothing half made.
    """
    base = home / "envs" / f"base-{digest(CONSTRAINTS, PACKAGES)}"
    folder = home / "envs" / f"sglang-{release}-{digest(CONSTRAINTS, PACKAGES, STANDIN)}"
    if not (folder / STAMP).is_file():
        if not (base / STAMP).is_file():
            build(base, lambda temp: _install_packages(temp, index, advance))
        advance(0.9)
        build(folder, lambda temp: _install_release(base, temp, release))
    advance(1.0)
    package = next((folder / "lib").glob("python3*/site-packages/sglang"))
    return Environment(python=folder / "bin" / "python", package=package)


def find_environment(home: Path) -> Path | None:
    """The interpreter of an environment that is there, of whichever release; nothing is installed."""
    made = f"sglang-*-{digest(CONSTRAINTS, PACKAGES, STANDIN)}/{STAMP}"
    found = sorted((home / "envs").glob(made))
    return found[0].parent / "bin" / "python" if found else None


def digest(*inputs: Path) -> str:
    whole = hashlib.sha256(sys.version.encode())
    for item in inputs:
        for path in sorted(item.rglob("*")) if item.is_dir() else [item]:
            if path.is_file() and "__pycache__" not in path.parts:
                whole.update(path.name.encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()[:10]


def build(folder: Path, fill: Callable[[Path], None]) -> None:
    """Fill a folder beside the right one, stamp it, and rename: what has the right name is whole."""
    temp = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(temp, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    temp.parent.mkdir(parents=True, exist_ok=True)
    try:
        fill(temp)
        (temp / STAMP).write_text("{}")
        try:
            temp.rename(folder)
        except OSError:
            if not (folder / STAMP).is_file():
                raise
            shutil.rmtree(temp)  # another lab made the same one meanwhile
    except BaseException:
        shutil.rmtree(temp, ignore_errors=True)
        raise


def _install_packages(folder: Path, index: str | None, advance: Advance) -> None:
    _run([sys.executable, "-m", "venv", str(folder)])
    source = choose_torch(folder, index or os.environ.get(INDEX_VARIABLE) or WHEEL_INDEX)
    advance(0.1)
    _pip(folder, *source, "torch")
    advance(0.4)
    names = [line for line in PACKAGES.read_text().split("\n") if line and not line.startswith("#")]
    # torch again: it is there, but what it requires may not be.
    _pip(folder, "torch", *names)
    advance(0.85)
    _pip(folder, "--no-deps", *UNRESOLVED)


def _install_release(base: Path, folder: Path, release: str) -> None:
    """A copy of the base by hard links, with one release's own wheel in it. Deploys replace files by rename,
    so that no copy ever writes into another's bytes."""
    shutil.copytree(base, folder, symlinks=True, copy_function=link)
    (folder / STAMP).unlink()
    _pip(folder, "--no-deps", f"sglang=={release}")
    install_standin(next((folder / "lib").glob("python3*/site-packages")))


def link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copy2(source, target)


def install_standin(site: Path) -> None:
    """The stand-in kernels as a distribution of their own, so that a server needs no PYTHONPATH."""
    shutil.copytree(STANDIN, site, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    info = site / "specops_lab_standin-0.1.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: specops-lab-standin\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(
        "[sglang.srt.plugins]\nspecops_lab = specops_lab_plugin:register\n"
    )


def choose_torch(folder: Path, index: str) -> tuple[str, ...]:
    """pip's words for a CPU build of torch: from the index of CPU builds, else from wherever pip finds one.

    Looks at what would be downloaded first. Raises LabError where that is a CUDA build.
    """
    # torch alone from its own index: that has other versions of what torch requires than our constraints,
    # so asking it for all of them finds nothing. They come with the other packages.
    alone = ("--no-deps", "--index-url", index, "--timeout", "6", "--retries", "0")
    for source in (alone, ()):
        report = _ask_pip(folder, *source, "torch")
        if report is None:
            continue
        refuse_cuda(report)
        return source
    raise LabError(
        f"no torch can be had: neither from {index} nor from pip's own index",
        host_state="nothing was installed",
        next_command=f"check the network, or name an index of CPU builds: {INDEX_VARIABLE}=https://… "
        "specops lab up",
    )


def refuse_cuda(report: dict[str, Any]) -> None:
    """`report` is pip's `--report` of a dry run. A CUDA torch would pull gigabytes that no CPU can use."""
    planned = [(i["metadata"]["name"], i["metadata"]["version"]) for i in report.get("install", [])]
    gpu = [f"{name} {version}" for name, version in planned if name.lower().startswith(GPU_PACKAGES)]
    gpu += [f"{name} {version}" for name, version in planned if name == "torch" and "+cu" in version]
    if gpu:
        raise LabError(
            f"pip would install a CUDA build of torch ({', '.join(gpu[:4])}{', …' if len(gpu) > 4 else ''}), "
            "several gigabytes that a lab without a GPU cannot use",
            host_state="nothing was installed",
            next_command=f"name an index of CPU builds: {INDEX_VARIABLE}=https://… specops lab up",
        )


def _ask_pip(folder: Path, *words: str) -> dict[str, Any] | None:
    """pip's report of what it would install; None where it finds nothing."""
    path = folder / "report.json"
    done = _call(
        [*_pip_words(folder), "--dry-run", "--ignore-installed", "--report", str(path), "-q", *words]
    )
    if done.returncode != 0 or not path.is_file():
        return None
    report: dict[str, Any] = json.loads(path.read_text())
    path.unlink()
    return report


def _pip_words(folder: Path) -> list[str]:
    return [
        str(folder / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "-c",
        str(CONSTRAINTS),
    ]


def _pip(folder: Path, *words: str) -> None:
    _run([*_pip_words(folder), "-q", *words])


def _call(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


def _run(argv: Sequence[str]) -> None:
    done = _call(argv)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
        raise LabError(
            f"`{' '.join(argv[:5])} …` failed: {' / '.join(last)}",
            host_state="nothing half made is left",
            next_command="specops lab up, once the network or the disk is as it should be",
        )


def make_models(home: Path, environment: Environment) -> Path:
    """The tiny pair below `home/models`, made by the lab's own Python in some seconds and kept."""
    script = HERE / "pair.py"
    folder = home / "models" / f"pair-{digest(script, HERE / 'words.txt')}"
    if not (folder / STAMP).is_file():
        build(folder, lambda temp: _run([str(environment.python), str(script), str(temp)]))
    return folder
