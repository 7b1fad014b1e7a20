"""Place: the one instance that a command is about, with its port settled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specops.facts.host import Question

if TYPE_CHECKING:
    from specops.config.playbook import Playbook
    from specops.config.target import Target

HUB_NAMES = (
    *("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"),
    *("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"),
)
"""Variables that say where models of the hub are kept and whether any is fetched. No secret is among them."""


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

    def hub(self, playbook: Playbook) -> dict[str, object]:
        """What a launch sets and unsets of those variables."""
        env = {**self.env, **playbook.env.set}
        return {
            "set": {name: env[name] for name in HUB_NAMES if name in env},
            "unset": [name for name in playbook.env.unset if name in HUB_NAMES],
        }

    def question(
        self,
        *,
        files: tuple[str, ...] = (),
        paths: tuple[str, ...] = (),
        models: tuple[str, ...] = (),
        hub: Mapping[str, Any] | None = None,
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
            hub=hub or {},
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
