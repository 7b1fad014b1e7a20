"""How the lab serves a release: its environment, its playbook, and the server that one starts by hand."""

from __future__ import annotations

import compileall
import os
import shutil
from pathlib import Path

from specops.lab import environment, older, server
from specops.lab.environment import Advance, Environment
from specops.lab.older import OlderLab, OlderRelease
from specops.lab.state import LabState, folder_of
from specops.lab.wheels import READY, unpack_release
from specops.steps.gate import parse_release

CPU_SPECULATION = (0, 5, 16, 0)
"""From here on SGLang's speculation has a CPU branch of its own."""
NOT_THE_INSTALL = ("HOME", "PATH", "LANG", "TMPDIR", "PYTHONPATH")


def is_older(release: str) -> bool:
    return parse_release(release) < CPU_SPECULATION


def find_prepared(release: str, home: Path) -> OlderLab | None:
    """A release's own tree beside an environment that is there already; None where there is none.

    The lab's own environment serves all later releases, whichever of them was installed in it.
    """
    if is_older(release):
        return older.find_prepared(release, home)
    python = environment.find_environment(folder_of("lab"))
    if python is None:
        return None
    return OlderLab(
        release=OlderRelease(version=release, transformers="", v2_env={}),
        python=python,
        package=unpack_release(release, home) / "sglang",
    )


def import_environment(lab: OlderLab, tree: Path) -> dict[str, str]:
    """Variables of a process that imports the package in `tree` instead of the release's own."""
    if is_older(lab.release.version):
        return older.server_environment(lab, tree)
    path = os.pathsep.join(map(str, (tree, lab.package.parent)))
    return {**server.server_env(lab.package.parent, lab.python), "PYTHONPATH": path}


def make_release(home: Path, release: str, index: str | None, advance: Advance) -> Environment:
    """The lab's own environment of a release below `home/envs`. Raises LabError.

    Of an older release it is a copy by hard links: what is deployed in the lab must not reach the copy that
    others take for the wheel's own bytes.
    """
    if not is_older(release):
        return environment.make_environment(home, release, index, advance)
    source = older.prepare(release, older.default_home())
    advance(0.9)
    stamp = environment.digest(older.STANDIN, source.python.parents[1] / READY, source.package.parent / READY)
    folder = home / "envs" / f"older-{release}-{stamp}"
    if not (folder / environment.STAMP).is_file():
        environment.build(folder, lambda temp: _copy(source, temp, folder))
    advance(1.0)
    package = next((folder / "lib").glob("python3*/site-packages/sglang"))
    return Environment(python=folder / "bin" / "python", package=package)


def _copy(source: older.OlderLab, folder: Path, final: Path) -> None:
    shutil.copytree(
        source.python.parents[1], folder, symlinks=True, copy_function=environment.link, dirs_exist_ok=True
    )
    (folder / READY).unlink(missing_ok=True)
    site = next((folder / "lib").glob("python3*/site-packages"))
    for entry in source.package.parent.iterdir():
        if entry.is_dir():
            _drop(site / entry.name)
            shutil.copytree(entry, site / entry.name, copy_function=environment.link)
    for name in older.STANDIN.iterdir():  # a kernel that was changed since is not in the source
        _drop(site / name.name)
    shutil.copytree(
        older.STANDIN, site, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
    )
    # An unpacked wheel has no bytecode and the lab's servers write none: every process would compile anew.
    compileall.compile_dir(site / "sglang", quiet=2, stripdir=str(folder), prependdir=str(final))


def _drop(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def playbook_of(release: str) -> str:
    return "lab-older" if is_older(release) else "lab"


def quiet_env(release: str) -> dict[str, str]:
    """Variables of every server of the lab, the deploys' too; the same for v1 and v2."""
    if not is_older(release):
        return dict(server.QUIET)
    lab = older.OlderLab(release=older.OLDER[release], python=Path(), package=Path())
    return {
        name: value for name, value in older.server_environment(lab).items() if name not in NOT_THE_INSTALL
    }


def server_argv(state: LabState) -> list[str]:
    """Always-on EAGLE-3, no gate. Older releases: EAGLEWorker (v1) with 4 branches, 5 steps, 16 tokens."""
    python, model, draft = Path(state.python), Path(state.model), Path(state.draft)
    if not is_older(state.release):
        return server.server_argv(python, model, draft, state.port)
    tree = older.draft_arguments(model.parent, steps=5, topk=4, draft_tokens=16)
    words = older.server_arguments(model.parent, state.port)
    return [str(python), "-m", "sglang.launch_server", *words, "--disable-overlap-schedule", *tree]
