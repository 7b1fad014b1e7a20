"""The options that commands share, each described once."""

from __future__ import annotations

from typing import Annotated

import typer

HostName = Annotated[
    str | None,
    typer.Option("--host", metavar="HOST", help="Of the inventory, or [user@]address[:port]."),
]
InstanceName = Annotated[
    str | None,
    typer.Option("--instance", metavar="NAME", help="Which server, where a host has several."),
]
InventoryPath = Annotated[str | None, typer.Option("--inventory", metavar="FILE", help="Inventory file.")]
PlaybookName = Annotated[
    str | None,
    typer.Option("--playbook", metavar="NAME", help="Name or path; default: the inventory's."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override the playbook. Repeatable."),
]
Threshold = Annotated[
    str | None, typer.Option("--threshold", metavar="T", help="Speculate up to this many running requests.")
]
GateKind = Annotated[str | None, typer.Option("--gate", metavar="KIND", help="auto, native, … or none.")]
PatchIds = Annotated[
    list[str] | None,
    typer.Option("--patch", metavar="ID", help="Besides the gate's own. Repeatable."),
]
PatchFolders = Annotated[
    list[str] | None,
    typer.Option("--patches", metavar="FOLDER", help="With more patches. Repeatable."),
]
PromptsFile = Annotated[
    str | None,
    typer.Option("--prompts", metavar="FILE", help="JSONL of prompts; default: built in."),
]
AcceptUnproven = Annotated[
    bool,
    typer.Option("--accept-unproven", help="Deploy an unproven patch; it stays only if S0 to S7 pass."),
]
AcceptNoRestore = Annotated[
    bool,
    typer.Option("--accept-no-restore", help="Go on although what serves now could not be started again."),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON lines on stdout instead of text on stderr.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before a server is stopped.")]
AcceptNew = Annotated[
    bool,
    typer.Option("--accept-new-host-key", help="Trust a host that is not known yet; never a changed key."),
]
DeployId = Annotated[
    str | None, typer.Argument(metavar="[DEPLOY]", help="Its id; default: the latest.", show_default=False)
]
