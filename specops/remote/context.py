"""What an operation on the host is given. Standard library only, Python 3.10 syntax."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Json = Any


class OpFailed(Exception):
    """An operation did not do what it should; `code` is stable, `message` is for people.

    `host_state` says what is true on the host now and `next_command` what to type; both may be empty.
    """

    def __init__(
        self, code: str, message: str, *, detail: Json = None, host_state: str = "", next_command: str = ""
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.detail = detail
        self.host_state = host_state
        self.next_command = next_command

    def as_json(self) -> dict[str, Json]:
        return {
            "code": self.code,
            "message": self.message,
            "detail": self.detail,
            "host_state": self.host_state,
            "next_command": self.next_command,
        }


@dataclass(frozen=True)
class Context:
    """One deploy on one host, as its operations see it."""

    deploy_id: str
    deploy_dir: Path
    """`<state>/<machine-id>/instances/<key>/deploys/<id>`, mode 0700."""
    store_dir: Path
    """`<state>/<machine-id>/store`: files named by their sha256."""
    agent_zip: Path
    """This agent's own zip on disk, to start child programs from (`python -B agent.zip child-smoke`)."""
    instance: dict[str, Json]
    emit: Callable[[dict[str, Json]], None]
    """Write one event for whoever follows (not durable, never raises)."""
    record: Callable[[dict[str, Json]], None]
    """Append one fsynced journal entry; seq and at are added."""
    aborted: Callable[[], str]
    """Non-empty (the reason) once the deploy was told to stop; long operations poll it every 0.5 s."""
    secrets: dict[str, str] = field(default_factory=dict)
    """Values that never leave the host unscrubbed, by name."""

    @property
    def vault(self) -> Path:
        """JSON, mode 0600: captured servers (argv, env, cwd) and secrets of this deploy."""
        return self.deploy_dir / "vault.json"


Op = Callable[[Context, dict[str, Json]], "dict[str, Json] | None"]
"""do(ctx, args) -> facts worth journaling with `done`. Raises OpFailed. An undo must hold when its
do never happened and when it runs twice."""
