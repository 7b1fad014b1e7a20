"""The lab: a real SGLang server on this machine, on its CPU."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from specops.cli.options import AsJson
from specops.cli.reach import speaking

app = typer.Typer(
    help="A real SGLang host on this machine, without a GPU.", no_args_is_help=True, rich_markup_mode=None
)
Name = Annotated[str, typer.Option("--name", help="Several labs can live side by side.")]


WheelIndex = Annotated[
    str | None, typer.Option("--wheel-index", metavar="URL", help="Where CPU builds of torch are found.")
]


@app.command()
def up(
    release: Annotated[
        str | None, typer.Option("--sglang", metavar="VERSION", help="SGLang release.")
    ] = None,
    name: Name = "lab",
    wheel_index: WheelIndex = None,
    as_json: AsJson = False,
) -> None:
    """Install what is missing; start the server and its sshd."""
    with speaking(as_json) as output:
        from specops.lab import lab

        began = time.monotonic()

        def tell(stage: str, fraction: float) -> None:
            elapsed_s = round(time.monotonic() - began, 1)
            event = {"event": "progress", "phase": "lab", "milestone": stage, "fraction": fraction}
            output.on_event({**event, "eta_s": None, "elapsed_s": elapsed_s})

        state = lab.up(release=release or lab.RELEASE, name=name, wheel_index=wheel_index, on_progress=tell)
        output.show("lab", _as_json(state))


@app.command()
def down(name: Name = "lab", as_json: AsJson = False) -> None:
    """Stop everything that the lab started."""
    with speaking(as_json) as output:
        from specops.lab import lab

        lab.down(name)
        output.show("lab", None)


@app.command()
def status(name: Name = "lab", as_json: AsJson = False) -> None:
    """Whether the lab is up, and where."""
    with speaking(as_json) as output:
        from specops.lab import lab

        state = lab.status(name)
        output.show("lab", None if state is None else _as_json(state))


@app.command()
def logs(
    name: Name = "lab",
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="The last so many lines.")] = 200,
    as_json: AsJson = False,
) -> None:
    """The log of the lab's server, on stdout."""
    with speaking(as_json) as output:
        from specops.errors import Refused
        from specops.lab import lab

        path = lab.log_path(name)
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise Refused(f"{path}: {error.strerror}", next_command="specops lab up") from error
        tail = "".join(text.splitlines(keepends=True)[-lines:])
        output.show("log", {"deploy": f"lab {name}", "which": "server", "path": str(path), "text": tail})


def _as_json(state: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(state)
