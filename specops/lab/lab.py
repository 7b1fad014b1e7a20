"""The lab: a real SGLang host on this machine, on the CPU, behind real SSH on 127.0.0.1."""

from __future__ import annotations

import contextlib
import fcntl
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

from specops.lab import processes, server, ssh
from specops.lab.environment import Environment, LabError, make_models
from specops.lab.releases import make_release, playbook_of, quiet_env, server_argv
from specops.lab.state import (
    LabState,
    OnProgress,
    folder_of,
    forget_state,
    read_state,
    write_state,
)

__all__ = ["LabError", "LabState", "down", "is_serving", "log_path", "status", "up"]

RELEASE = "0.5.18"
STAGES = ("packages", "models", "ssh", "server")
PORTS = range(20000, 30000, 2)
"""Below what the kernel gives to outgoing connections; the server's is even, its SSH server's the next."""


def up(
    *,
    release: str = RELEASE,
    name: str = "lab",
    wheel_index: str | None = None,
    on_progress: OnProgress = lambda stage, fraction: None,
    serve: bool = True,
    ssh_kind: str | None = None,
) -> LabState:
    """Bring the lab up, or what of it is not. Idempotent; works offline once it was up.

    Raises LabError; what was started by then is stopped again.
    """
    folder = folder_of(name)
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        known = read_state(name)
        if known and known.release == release and is_serving(known):
            for stage in STAGES:
                on_progress(stage, 1.0)
            return known
        _stop_all(folder)
        environment = make_release(
            _shared(folder), release, wheel_index, lambda part: on_progress("packages", part)
        )
        models = make_models(_shared(folder), environment)
        on_progress("models", 1.0)
        try:
            return _start(name, folder, release, environment, models, on_progress, serve, ssh_kind)
        except BaseException:
            _stop_all(folder)
            raise


def _shared(folder: Path) -> Path:
    """Environments and models are the same for every lab of a user, and kept by their content."""
    return folder_of("lab") if folder.parent == folder_of("lab").parent else folder


def _start(
    name: str,
    folder: Path,
    release: str,
    environment: Environment,
    models: Path,
    on_progress: OnProgress,
    serve: bool,
    ssh_kind: str | None,
) -> LabState:
    known = read_state(name)
    # By the folder's name, so that the labs of two users or homes do not meet while one of them restarts.
    wish = PORTS[zlib.crc32(str(folder).encode()) % len(PORTS)]
    ssh_port = processes.free_port(known.ssh_port if known else wish + 1)
    port = processes.free_port(known.port if known else wish)
    keys = ssh.make_keys(folder / "ssh", ssh_port)
    kind = ssh.start_ssh(folder / "ssh", folder, keys, ssh_port, ssh_kind)
    on_progress("ssh", 1.0)
    state = LabState(
        name=name,
        folder=str(folder),
        release=release,
        python=str(environment.python),
        package=str(environment.package),
        model=str(models / "target"),
        draft=str(models / "draft"),
        port=port,
        ssh_port=ssh_port,
        ssh_user=ssh.user(),
        ssh_kind=kind,
        identity_file=str(keys.user),
        known_hosts=str(keys.known_hosts),
        state_dir=str(folder / "state"),
        server_log=str(folder / "server.log"),
    )
    state.inventory.write_text(json.dumps({"hosts": {state.name: inventory_entry(state)}}, indent=1))
    write_state(state)
    if serve:
        start_serving(state)
    on_progress("server", 1.0)
    return state


def start_serving(state: LabState) -> None:
    """Start the lab's own server, by hand as it were, and wait for a token."""
    folder, log = Path(state.folder), Path(state.server_log)
    log.write_bytes(b"")
    env = server.server_env(folder, Path(state.python), quiet_env(state.release))
    process = processes.start_detached(server_argv(state), env, log, folder)
    server.await_token(state.port, process, log)


def stop_serving(state: LabState) -> None:
    """Stop every server of the lab, its own or a deploy's, and leave SSH up."""
    _stop_all(Path(state.folder))
    keys = ssh.make_keys(Path(state.folder) / "ssh", state.ssh_port)
    ssh.start_ssh(Path(state.folder) / "ssh", Path(state.folder), keys, state.ssh_port, state.ssh_kind)


def inventory_entry(state: LabState) -> dict[str, object]:
    """The inventory's entry `lab` (JSON is YAML); it needs nothing of the user's own SSH set-up."""
    return {
        "address": "127.0.0.1",
        "port": state.ssh_port,
        "user": state.ssh_user,
        "identity_file": state.identity_file,
        "known_hosts": state.known_hosts,
        "python": state.python,
        "state": state.state_dir,
        "playbook": playbook_of(state.release),
        "env": {**quiet_env(state.release), "SPECOPS_LAB": state.folder},
        "vars": {"model": state.model, "draft": state.draft},
        "instances": [{"name": "tiny", "port": state.port}],
    }


def is_serving(state: LabState) -> bool:
    return ssh.banner(state.ssh_port).startswith("SSH-2.0-") and server.answers(state.port)


def status(name: str = "lab") -> LabState | None:
    """None where no lab of this name is up."""
    state = read_state(name)
    return state if state and processes.carrying(Path(state.folder)) else None


def down(name: str = "lab") -> None:
    """Leave no process and no port. What was downloaded and made stays for the next time."""
    folder = folder_of(name)
    if folder.is_dir():
        with _alone(folder):
            known = read_state(name)
            _stop_all(folder)
            _require_free((known.port, known.ssh_port) if known else ())
            forget_state(name)
            (folder / "inventory.yaml").unlink(missing_ok=True)


def log_path(name: str = "lab") -> Path:
    return folder_of(name) / "server.log"


def _stop_all(folder: Path) -> None:
    left = processes.stop_carrying(folder)
    if left:
        raise LabError(
            f"processes of the lab outlived KILL: {', '.join(map(str, left))}",
            host_state="the lab is not down",
            next_command="specops lab down",
        )


def _require_free(ports: tuple[int, ...]) -> None:
    held = processes.await_free(ports)
    if held:
        raise LabError(
            f"still held after the lab's processes ended: port {', '.join(map(str, held))}",
            host_state="none of the lab's processes is left",
            next_command="specops lab down",
        )


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One `up` or `down` of a lab at a time. Raises LabError at once where another one runs."""
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabError(
                "another `specops lab` is at work in this lab",
                host_state=f"its folder is {folder}",
                next_command="wait for it, then: specops lab status",
            ) from None
        yield
