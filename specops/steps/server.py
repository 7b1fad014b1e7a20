"""Server: capture, rehearse, stop, launch, await, each with how it is taken back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from specops.steps.step import Command, Inert, Step

if TYPE_CHECKING:
    from specops.facts.gpus import Holder
    from specops.facts.host import Rank

OLD_SERVER = "old_server"
"""The vault's name for what was serving when the deploy began."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Clocks:
    """How long a load may take: without progress, and in all. Seconds."""

    progress_s: float
    cap_s: float
    eta_s: float | None = None

    def as_json(self) -> dict[str, float | None]:
        return {"progress_s": self.progress_s, "cap_s": self.cap_s, "eta_s": self.eta_s}


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchSpec:
    """How a server is started. `{deploy_dir}` and `{state}` are filled in on the host."""

    argv: tuple[str, ...]
    cwd: str
    base: str
    """Where its environment starts from: `old_server`, `login`, or `vault:<deploy>/<name>`."""
    set: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    """Folders that go in front of PATH."""
    modules: tuple[str, ...] = ()
    """Folders that go in front of PYTHONPATH."""
    port: int
    cookie: str
    scope: str | None = None
    """`user` or `system`: started in a scope of systemd's, which no logout ends."""

    def as_json(self) -> dict[str, Any]:
        return {
            **({"scope": self.scope} if self.scope else {}),
            "argv": list(self.argv),
            "cwd": self.cwd,
            "env": {
                "base": self.base,
                "set": dict(self.set),
                "unset": list(self.unset),
                "path": list(self.path),
                "modules": list(self.modules),
            },
            "port": self.port,
            "cookie": self.cookie,
            "log": "{deploy_dir}/server.log",
        }


def capture(pid: int | None, start_ticks: int | None, port: int, *, accept_no_restore: bool = False) -> Step:
    accepted = {"accept_no_restore": True} if accept_no_restore else {}
    return Step(
        name="capture the old server" if pid else "note that nothing is serving",
        phase="backup",
        do=Command(
            op="server.capture", args={"pid": pid, "start_ticks": start_ticks, "port": port, **accepted}
        ),
        undo=Inert("a note in the vault"),
    )


def rehearse(
    spec: LaunchSpec, staged: Sequence[Mapping[str, Any]], modules: Sequence[str], copy: str | None = None
) -> Step:
    """`copy` is the folder of a copy that an earlier step makes; None: the rehearsal makes its own."""
    return Step(
        name="rehearse imports and launch arguments on a copy",
        phase="rehearse",
        do=Command(
            op="server.rehearse",
            args={
                "files": [dict(file) for file in staged],
                "launch": spec.as_json(),
                "modules": list(modules),
                **({"copy": copy} if copy else {}),
            },
        ),
        undo=Inert("a copy of the package, deleted again"),
    )


def warm(models: Sequence[str], max_s: float) -> Step:
    return Step(
        name="read the weights ahead, while the old server serves",
        phase="rehearse",
        do=Command(op="server.warm", args={"models": list(models), "max_s": max_s}),
        undo=Inert("only reads"),
    )


def stop(
    pid: int | None,
    start_ticks: int | None,
    port: int,
    *,
    drain_s: float,
    term_s: float,
    clocks: Clocks,
    ranks: Sequence[Rank] = (),
    holders: Sequence[Holder] = (),
) -> Step:
    """`ranks` are stopped too: a launcher that died left them, and no server could be made of them again.
    `holders` may stay on the server's GPUs: the plan showed them. Any other ends the step."""
    name = f"stop the old server (pid {pid})" if pid else f"prove that port {port} is free"
    left = ", ".join(str(rank.pid) for rank in ranks)
    return Step(
        name=f"stop ranks that a dead launcher left (pid {left}); {name}" if ranks else name,
        phase="stop",
        do=Command(
            op="server.stop",
            args={
                "pid": pid,
                "start_ticks": start_ticks,
                "drain_s": drain_s,
                "term_s": term_s,
                "port": port,
                **({"ranks": [[rank.pid, rank.start_ticks] for rank in ranks]} if ranks else {}),
                **({"holders": [[other.pid, other.start_ticks] for other in holders]} if holders else {}),
            },
        ),
        undo=Command(op="server.restore", args={"port": port, "ready": clocks.as_json()}),
    )


def launch(spec: LaunchSpec) -> Step:
    return Step(
        name=f"launch the new server on port {spec.port}",
        phase="launch",
        do=Command(op="server.launch", args={"launch": spec.as_json()}),
        undo=Command(op="server.kill", args={"cookie": spec.cookie, "port": spec.port}),
    )


def launch_captured(vault: str, port: int, cookie: str) -> Step:
    """Start the server that a deploy captured: argv, folder and environment come from its vault."""
    spec = {"vault": vault, "port": port, "cookie": cookie, "log": "{deploy_dir}/server.log"}
    return Step(
        name="start the server of before again",
        phase="launch",
        do=Command(op="server.launch", args={"launch": spec}),
        undo=Command(op="server.kill", args={"cookie": cookie, "port": port}),
    )


def prove_free(port: int) -> Step:
    """The last step of a rollback to a host on which nothing was serving."""
    return Step(
        name=f"prove that nothing serves on port {port}, as before",
        phase="ready",
        do=Command(
            op="server.stop",
            args={"pid": None, "start_ticks": None, "drain_s": 0, "term_s": 0, "port": port},
        ),
        undo=Inert("only looks"),
    )


def await_ready(port: int, cookie: str, clocks: Clocks, expect: Mapping[str, Any], gate: str) -> Step:
    return Step(
        name="await the new server",
        phase="ready",
        do=Command(
            op="server.await",
            args={
                "port": port,
                "cookie": cookie,
                "ready": clocks.as_json(),
                "expect": dict(expect),
                "gate": gate,
            },
        ),
        undo=Inert("only waits"),
    )


def smoke(spec: Mapping[str, Any]) -> Step:
    return Step(
        name="boundary smoke test",
        phase="smoke",
        do=Command(op="smoke", args=dict(spec)),
        undo=Inert("requests to a server that the launch step's undo stops"),
    )
