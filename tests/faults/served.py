"""A box with servers: one that an operator started before the deploy, and the one that the plan launches."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specops.remote import procs
from specops.steps import server as steps

from . import disks
from .box import LIMIT_S, Box, step, undo_swap
from .points import BYSTANDERS, scan_newcomers

Json = Any
STANDIN = Path(__file__).with_name("standin.py")
SECRETS = {"argv": "sk-argv-77d1", "environment": "sk-env-3c08", "request": "sk-request-91be"}
"""Planted in the old server's arguments and environment, and sent with the deploy."""
OWNER = 4321
"""Owns one of the files where root made the box: whoever replaces the file must keep that."""
CLOCKS = steps.Clocks(progress_s=120.0, cap_s=240.0)
_ports = itertools.count(os.getpid() * 41)


def free_port() -> int:
    while True:
        port = 21000 + next(_ports) % 4000
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port


def until(holds: Any, limit_s: float = LIMIT_S) -> Any:
    end = time.monotonic() + limit_s
    while not (value := holds()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)
    return value


@dataclass
class ServedBox(Box):
    port: int = field(default_factory=free_port)
    uid: int = 0
    """Who runs the agent and the old server; 0: whoever runs the tests."""
    disk: str = ""
    """The folder of the box that lies on a small disk of its own."""

    def __post_init__(self) -> None:
        if self.disk:
            disks.mount(self.folder / self.disk)
        super().__post_init__()
        shutil.copy(STANDIN, self.folder)
        self.id = f"d{self.port}"
        """A cookie is searched in the whole machine, so no two boxes may share an id."""
        (self.folder / "models").mkdir()
        if self.uid:
            for path in (self.folder, *self.folder.rglob("*")):
                os.chown(path, self.uid, self.uid)
        elif os.geteuid() == 0:
            os.chown(self.root / "sub/b.py", OWNER, OWNER)
        self.old = self._start_old()

    def _start_old(self) -> procs.Process:
        log = os.open(self.folder / "old.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        env = {"PATH": os.environ["PATH"], "HF_TOKEN": SECRETS["environment"], "BOX": str(self.folder)}
        child = subprocess.Popen(
            [*self.argv("old"), "--model-path", str(self.folder / "models"), "--api-key", SECRETS["argv"]],
            env=env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            user=self.uid or None,
            group=self.uid or None,
        )
        os.close(log)
        self._popen = child  # reaped in `finish_all`
        until(lambda: procs.read_listeners(self.port))
        found = procs.read_process(child.pid)
        assert found is not None
        return found

    def old_dies(self) -> None:
        """With all that belongs to it, as in a reboot."""
        os.killpg(self.old.pid, signal.SIGKILL)
        self._popen.wait(timeout=10)
        until(lambda: procs.port_is_free(self.port))

    def argv(self, name: str) -> list[str]:
        program = [disks.python_for(self.uid), "-S", str(self.folder / STANDIN.name)]
        words = ["sglang.launch_server", "--port", str(self.port), "--name", name]
        return [*program, *words, "--reads", str(self.root / "a.py")]

    def start(
        self, verb: str, params: Json = None, wrap: Callable[[], object] | None = None
    ) -> tuple[int, int]:
        return super().start(verb, params, disks.dropping(self.uid, wrap or (lambda: None)))

    # -- plans

    def deploy_plan(self, verdict: str = "pass") -> dict[str, Json]:
        files = super().steps()
        launch = steps.LaunchSpec(
            argv=tuple(self.argv("new")),
            cwd=str(self.folder),
            base="old_server",
            port=self.port,
            cookie=self.id,
        )
        pid, ticks = self.old.pid, self.old.start_ticks
        stop = steps.stop(pid, ticks, self.port, drain_s=0.0, term_s=5.0, clocks=CLOCKS)
        made = [
            *files[:2],
            named("capture", steps.capture(pid, ticks, self.port)),
            files[2],
            named("stop", stop),
            *files[3:],
            named("launch", steps.launch(launch)),
            named(
                "await", steps.await_ready(self.port, self.id, CLOCKS, {"max_running_requests": 16}, "none")
            ),
            step("smoke", "smoke", "files.judge", {"verdict": verdict, "summary": "S3 saw drafts above T"}),
        ]
        return self.plan(made, id=self.id)

    def rollback_plan(self) -> dict[str, Json]:
        """Of the deploy in force, as engine.rollback makes one; `begin_rollback` comes first."""
        found = procs.port_holders(scan_newcomers(), self.port)
        server = procs.read_process(min(found))
        assert server is not None
        files = self.changes(back=True)
        check = [{"path": f["path"], "sha256": f["before"]} for f in files]
        mine = f"{self.id}-back"
        pid, ticks = server.pid, server.start_ticks
        stop = steps.stop(pid, ticks, self.port, drain_s=0.0, term_s=5.0, clocks=CLOCKS)
        made = [
            step("check", "check", "files.check", {"files": check}),
            step("back up", "backup", "files.backup", {"files": check}),
            named("capture", steps.capture(pid, ticks, self.port)),
            named("stop", stop),
            step("swap", "swap", "files.swap", {"files": files}, undo_swap(files)),
            named("launch", steps.launch_captured(f"{self.id}/old_server", self.port, mine)),
            named("await", steps.await_ready(self.port, mine, CLOCKS, {}, "none")),
        ]
        return self.plan(made, id=mine, kind="rollback", summary={"reverts": self.id})

    # -- what there is

    def processes(self) -> dict[int, list[str]]:
        """Everything that belongs to this box: by its environment, or by a file of the box held open."""
        mine = {}
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) in BYSTANDERS or int(name) == os.getpid():
                continue
            argv = procs.read_argv(int(name))
            environ = procs.read_environ(int(name)) or {}
            if environ.get("BOX") == str(self.folder) or any(
                link.startswith(f"{self.folder}/") for link in open_files(int(name))
            ):
                mine[int(name)] = argv
        return mine

    def servers(self) -> dict[int, str]:
        """Pid -> `old` or `new`, launchers and ranks."""
        return {pid: argv[7] for pid, argv in self.processes().items() if "sglang.launch_server" in argv}

    def serving(self) -> tuple[str, str] | None:
        """(name, the bytes of a.py that it was started on) of what listens, by its own report."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/server_info")
            info = json.loads(connection.getresponse().read())
        except OSError:
            return None
        finally:
            connection.close()
        return info["served_model_name"], info["reads"]

    def attributes(self) -> dict[str, tuple[int, int, int]]:
        """Mode, uid and gid of every file under the root."""
        found = {}
        for path in self.root.rglob("*"):
            if path.is_file():
                now = path.stat()
                found[path.relative_to(self.root).as_posix()] = (
                    stat.S_IMODE(now.st_mode),
                    now.st_uid,
                    now.st_gid,
                )
        return found

    def leftovers(self) -> list[str]:
        """Half written files, processes, descriptors and secrets that nobody owns any more."""
        found = [name.removeprefix(str(self.folder)) for name in super().leftovers()]
        processes = self.processes()
        servers = [pid for pid, argv in processes.items() if "sglang.launch_server" in argv]
        found += [f"process {argv}" for pid, argv in processes.items() if pid not in servers]
        for pid in servers:
            found += [f"descriptor {link} of the server" for link in stray_descriptors(pid, self.folder)]
        found += list(self._in_state())
        return found

    def _in_state(self) -> Iterator[str]:
        for path in (self.folder / "state").rglob("*"):
            name = str(path.relative_to(self.folder))
            if stat.S_IMODE(path.stat().st_mode) != (0o700 if path.is_dir() else 0o600):
                yield f"mode {path.stat().st_mode:o} of {name}"
            if path.is_file() and path.name not in ("vault.json", "server.log", "old-server.log"):
                text = path.read_text(errors="replace")
                yield from (f"secret of the {kind} in {name}" for kind, key in SECRETS.items() if key in text)

    def end(self) -> list[str]:
        """Stop whatever is left; what still holds the port afterwards is a leftover too."""
        for _ in range(100):
            left = self.processes()
            if not left:
                break
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        self._popen.wait(timeout=10)
        if self.disk:
            disks.unmount(self.folder / self.disk)
            self.disk = ""
        return [] if procs.port_is_free(self.port) else [f"port {self.port}"]


def named(name: str, made: Any) -> dict[str, Json]:
    """A step of the product under a short name, as it goes over the wire."""
    wire: dict[str, Json] = made.as_json()
    return {**wire, "name": name}


def open_files(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                yield os.readlink(f"/proc/{pid}/fd/{name}")


def stray_descriptors(pid: int, folder: Path) -> list[str]:
    """Of a server: anything but its null device, its log and the one socket that it listens on."""
    links = list(open_files(pid))
    logs = ("old.log", "server.log", "old-server.log")
    strange = [x for x in links if x != "/dev/null" and not (x.startswith(str(folder)) and x.endswith(logs))]
    sockets = [x for x in strange if x.startswith("socket:")]
    return [x for x in strange if not x.startswith("socket:")] + sockets[1:]
