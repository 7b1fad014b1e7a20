"""The host of the benchmark: a real sshd on loopback, an install with five files, and the job that all do."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conformance.sshd import Sshd

FILES = tuple(f"part{number}.py" for number in range(5))
FILE_BYTES = 27 * 1024
RELEASE = "9.9.9"
COMMANDS = (["id", "-u"], ["uname", "-r"], ["nproc"], ["cat", "/proc/loadavg"], ["df", "-P", "/"])
SESSION = re.compile(rb"^Starting session: ", re.M)


def content(name: str, state: str) -> bytes:
    """Python of exactly FILE_BYTES: distinct lines, of which the new state changes one in the middle."""
    lines = [f"{name[:-3].upper()}_{number} = {number * 7919 % 10007!r}\n" for number in range(2000)]
    lines[300] = f"STATE = {state!r}\n"
    text = "".join(lines)[: FILE_BYTES - 1]
    return (text[: text.rfind("\n") + 1] + "#" * FILE_BYTES).encode()[: FILE_BYTES - 1] + b"\n"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    sshd: Sshd
    folder: Path

    @property
    def package(self) -> Path:
        return self.folder / "env/lib/python3.11/site-packages/sglang"

    @property
    def python(self) -> Path:
        return self.folder / "env/bin/python"

    @property
    def source(self) -> Path:
        """The new files, on the operator's side."""
        return self.folder / "source"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def backups(self) -> Path:
        return self.folder / "backups"

    def build(self) -> None:
        self.python.parent.mkdir(parents=True)
        self.python.symlink_to(Path(sys.executable).resolve())
        self.package.mkdir(parents=True)
        (self.package / "__init__.py").touch()
        (self.package / "_version.py").write_text(f"__version__ = '{RELEASE}'\n")
        self.source.mkdir()
        for name in FILES:
            (self.source / name).write_bytes(content(name, "new"))
        self.reset()

    def reset(self) -> None:
        """Old bytes everywhere, nothing remembered."""
        for folder in (self.state, self.backups):
            shutil.rmtree(folder, ignore_errors=True)
        for path in self.package.glob("*~"):
            path.unlink()
        for name in FILES:
            (self.package / name).write_bytes(content(name, "old"))
            (self.package / name).chmod(0o640)

    def is_changed(self) -> bool:
        return all((self.package / name).read_bytes() == content(name, "new") for name in FILES)

    def is_unchanged(self) -> bool:
        return all((self.package / name).read_bytes() == content(name, "old") for name in FILES)

    def sessions(self) -> int:
        """Started by this sshd so far: commands, shells and subsystems."""
        return len(SESSION.findall((self.sshd.folder / "sshd.log").read_bytes()))

    def job(self, port: int) -> dict[str, Any]:
        """All that a tool is told, through the environment variable OPS_JOB."""
        known = self.sshd.folder / "known_hosts"
        known.write_text(self.sshd.known_line() + self.sshd.known_line(port=port))
        return {
            "host": "127.0.0.1",
            "port": port,
            "user": self.sshd.user,
            "identity": str(self.sshd.identity),
            "known_hosts": str(known),
            "folder": str(self.package),
            "backups": str(self.backups),
            "source": str(self.source),
            "python": str(self.python),
            "state": str(self.state),
            "files": list(FILES),
            "commands": [list(command) for command in COMMANDS],
            "release": RELEASE,
        }


def job_env(job: dict[str, Any]) -> dict[str, str]:
    """Nothing of this process but what any program needs: no agent, no options of Python's."""
    keep = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "TMPDIR") if key in os.environ}
    return {**keep, "OPS_JOB": json.dumps(job)}
