"""Place: the one instance that a command is about, with its port settled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specops.facts.host import Question

if TYPE_CHECKING:
    from specops.config.playbook import Playbook
    from specops.config.target import Target


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    host: str
    port: int
    """That SGLang serves on."""
    python: str
    """Interpreter of the install, on the host; `~` is the remote user's home."""
    state: str
    env: Mapping[str, str]
    """Of the server, over the playbook's base."""

    def reference(self) -> dict[str, object]:
        """The instance as requests name it (ARCHITECTURE, Wire)."""
        return {"state": self.state, "port": self.port, "python": self.python}

    def question(
        self,
        *,
        files: tuple[str, ...] = (),
        paths: tuple[str, ...] = (),
        models: tuple[str, ...] = (),
        ports: tuple[int, ...] = (),
        contents: tuple[str, ...] = (),
        secrets: Mapping[str, Any] | None = None,
    ) -> Question:
        return Question(
            state=self.state,
            port=self.port,
            python=self.python,
            files=files,
            paths=paths,
            models=models,
            ports=ports,
            contents=contents,
            secrets=secrets or {},
        )


def find_place(target: Target, playbook: Playbook | None) -> Place:
    instance = target.instance
    return Place(
        host=target.host.name,
        port=target.port(playbook.server.port if playbook else None),
        python=instance.python,
        state=instance.state,
        env=instance.env,
    )
