"""The command that proves both sides of the threshold on a running server and changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from specops.cli.options import (
    AcceptNew,
    AsJson,
    GateKind,
    HostName,
    InstanceName,
    InventoryPath,
    PlaybookName,
    PromptsFile,
    Settings,
    Threshold,
)
from specops.cli.reach import Reach, list_overrides, reach_with_playbook, speaking, where

if TYPE_CHECKING:
    from specops.ui.output import Output

CODES = {"pass": 0, "inconclusive": 15, "fail": 16, "error": 16}
Url = Annotated[str | None, typer.Option("--url", metavar="URL", help="Any running server, without SSH.")]
ApiKey = Annotated[
    str | None,
    typer.Option("--api-key-env", metavar="NAME", help="With --url: the variable that holds its key."),
]
ApiKeyFile = Annotated[
    str | None, typer.Option("--api-key-file", metavar="FILE", help="With --url: a file that holds its key.")
]
Shared = Annotated[bool, typer.Option("--shared", help="Go on although others use the server.")]


def register(app: typer.Typer) -> None:
    app.command()(smoke)


def smoke(
    host: HostName = None,
    instance: InstanceName = None,
    inventory: InventoryPath = None,
    playbook: PlaybookName = None,
    settings: Settings = None,
    threshold: Threshold = None,
    gate: GateKind = None,
    url: Url = None,
    api_key_env: ApiKey = None,
    api_key_file: ApiKeyFile = None,
    shared: Shared = False,
    prompts: PromptsFile = None,
    as_json: AsJson = False,
    accept_new: AcceptNew = False,
) -> int:
    """Prove both sides of the threshold on a running server."""
    overrides = list_overrides(settings, threshold=threshold, gate=gate)
    if url is not None:
        if host is not None:
            raise typer.BadParameter("--url and --host exclude each other")
        with speaking(as_json) as output:
            from specops.cli.proof import read_api_key, smoke_url

            key = read_api_key(api_key_env, api_key_file)
            result = smoke_url(
                url, playbook, overrides, key=key, shared=shared, prompts=prompts, on_event=output.on_event
            )
            return _tell(output, result, url)
    if api_key_env or api_key_file:
        raise typer.BadParameter("--api-key-env and --api-key-file go with --url")
    asked = where(host, instance, inventory, as_json, accept_new)
    with reach_with_playbook(asked, playbook, overrides) as at:
        from specops.cli.proof import describe_running
        from specops.facts.host import read_host_facts

        facts = read_host_facts(at.connector, at.place.question())
        book = at.need_playbook()
        spec = describe_running(facts, at.place, book, threshold=threshold, shared=shared, prompts=prompts)
        return _tell(at.output, at.ask("smoke", smoke=spec), at.place.host)


def _tell(output: Output, result: Any, host: str) -> int:
    """Shown, and kept with its picture: what a proof rests on outlives the terminal."""
    from specops.ui.keep import keep_proof

    output.show("smoke", {**result, "kept": keep_proof(host, result)})
    return CODES.get(str(result.get("verdict")), CODES["error"])


def smoke_running(at: Reach, *, threshold: str | None, prompts: str | None) -> tuple[int, str, int]:
    """(exit code, gate, T) of the boundary smoke test that a sweep has to pass first."""
    from specops.cli.proof import describe_running
    from specops.facts.host import read_host_facts

    facts = read_host_facts(at.connector, at.place.question())
    spec = describe_running(
        facts, at.place, at.need_playbook(), threshold=threshold, shared=False, prompts=prompts
    )
    code = _tell(at.output, at.ask("smoke", smoke=spec), at.place.host)
    return code, str(spec["gate"]), int(spec["threshold"])
