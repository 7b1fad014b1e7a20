"""The lab: a real SGLang server on this machine, on its CPU."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from specops.cli.options import AsJson
from specops.cli.reach import speaking

app = typer.Typer(
    help="A real SGLang host on this machine, without a GPU.", no_args_is_help=True, rich_markup_mode=None
)
Name = Annotated[str, typer.Option("--name", help="Several labs can live side by side.")]


@app.command()
def up(
    release: Annotated[str, typer.Option("--sglang", help="SGLang release.")] = "0.5.18",
    name: Name = "lab",
    as_json: AsJson = False,
) -> None:
    """Install what is missing and start the server and its sshd."""
    with speaking(as_json) as output:
        from specops.lab import lab

        state = lab.up(name, release=release, on_event=output.on_event)
        output.show("lab", _as_json(state))


@app.command()
def down(name: Name = "lab", as_json: AsJson = False) -> None:
    """Stop everything that the lab started."""
    with speaking(as_json) as output:
        from specops.lab import lab

        lab.down(name, on_event=output.on_event)
        output.show("lab", None)


@app.command()
def status(name: Name = "lab", as_json: AsJson = False) -> None:
    """Whether the lab is up, and where."""
    with speaking(as_json) as output:
        from specops.lab import lab

        state = lab.status(name)
        output.show("lab", None if state is None else _as_json(state))


@app.command()
def logs(name: Name = "lab", as_json: AsJson = False) -> None:
    """The log of the lab's server."""
    with speaking(as_json) as output:
        from specops.lab import lab

        output.show("log", lab.logs(name))


def _as_json(state: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(state)
