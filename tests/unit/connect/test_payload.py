"""The agent's zip and the line that starts it."""

from __future__ import annotations

import io
import shutil
import subprocess
import zipfile
from pathlib import Path

from specops.connect.payload import BOOTSTRAP, REMOTE, agent_argv, build_zip, shell_line


def test_equal_files_are_equal_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = tmp_path / name
        (folder / "data").mkdir(parents=True)
        (folder / "data/table.tsv").write_text("a\tb\n")
        (folder / "main.py").write_text("x = 1\n")
        (folder / "__pycache__").mkdir()
        (folder / f"__pycache__/main.{name}.pyc").write_bytes(name.encode())
    assert build_zip(tmp_path / "one") == build_zip(tmp_path / "two")
    with zipfile.ZipFile(io.BytesIO(build_zip(tmp_path / "one"))) as archive:
        assert archive.namelist() == ["__main__.py", "agent/data/table.tsv", "agent/main.py"]
    (tmp_path / "two/main.py").write_text("x = 2\n")
    assert build_zip(tmp_path / "one") != build_zip(tmp_path / "two")


def test_the_real_agent_is_found() -> None:
    with zipfile.ZipFile(io.BytesIO(build_zip(REMOTE))) as archive:
        assert "agent/context.py" in archive.namelist()


def test_the_command_survives_every_shell_that_is_here() -> None:
    assert "'" not in BOOTSTRAP
    assert "!" not in BOOTSTRAP
    assert "\n" not in BOOTSTRAP
    argv = agent_argv("/a b/python", become="root")
    assert argv[:4] == ["sudo", "-n", "-H", "-u"]
    for shell in filter(None, map(shutil.which, ("sh", "bash", "dash", "zsh", "csh", "tcsh", "fish"))):
        command = shell_line(["printf", "%s\\n", *argv])
        done = subprocess.run([shell, "-c", command], capture_output=True, text=True, check=True)
        assert done.stdout == "".join(f"{item}\n" for item in argv)


def test_a_home_is_the_remote_shell_s_to_find() -> None:
    argv = ["printf", "%s\\n", "~/a b/python", "~ann"]
    done = subprocess.run(["sh", "-c", shell_line(argv)], capture_output=True, text=True, env={"HOME": "/h"})
    assert done.stdout == "/h/a b/python\n~ann\n"
