"""The change by specops: a plan for the executor on the host, with a deploy's lock, journal and undo.

A deploy runs no commands of its own, so the agent gets one operation more here.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from specops.connect.opening import open_connector

Json = Any
COMMAND_OP = """

def _command(ctx, args):
    import subprocess
    done = subprocess.run(args["argv"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise OpFailed("command_failed", f"{args['argv']}: exit status {done.returncode}: {done.stderr}")
    return {"out": done.stdout}

OPS["command"] = _command
"""


def agent_with_commands() -> bytes:
    from specops.connect import payload

    with tempfile.TemporaryDirectory() as work:
        folder = Path(shutil.copytree(payload.REMOTE, Path(work) / "remote"))
        with (folder / "files.py").open("a") as file:
            file.write(COMMAND_OP)
        return payload.build_zip(folder)


def make_plan(job: dict[str, Any]) -> Any:
    from specops.engine.plan import Outage, Plan, new_id
    from specops.steps.files import FileChange, back_up, check_files, digest, stage, swap
    from specops.steps.step import Command, Inert, Step

    changes = []
    for name in job["files"]:
        new = Path(job["source"], name).read_bytes()
        changes.append(
            FileChange(
                path=f"{job['folder']}/{name}", before=job["before"][name], after=digest(new), content=new
            )
        )
    commands = [
        Step(
            name=" ".join(argv),
            phase="commit",
            do=Command(op="command", args={"argv": argv}),
            undo=Inert("only reads"),
        )
        for argv in job["commands"]
    ]
    instance = {"state": job["state"], "port": 31993, "python": job["python"], "root": job["folder"]}
    return Plan(
        id=new_id(),
        kind="deploy",
        host="box",
        instance=instance,
        facts_digest="",
        summary={},
        steps=(check_files(changes), back_up(changes), stage(changes), swap(changes), *commands),
        blobs={str(change.after): change.content for change in changes if change.content},
        outage=Outage(load_s=None, restore_s=None, replaces=None),
    )


def main() -> None:
    job = json.loads(os.environ["OPS_JOB"])
    host = SimpleNamespace(
        name="box",
        address=job["host"],
        port=job["port"],
        user=job["user"],
        identity_file=job["identity"],
        known_hosts=job["known_hosts"],
        become=None,
    )
    # First, as the command line does it: the connection is made while the rest is loaded.
    connector = open_connector(host, python=job["python"])
    from specops.connect import exchange, ssh
    from specops.engine.deploy import run_plan
    from specops.engine.outcome import Deployed

    agent = Path(job["agent"]).read_bytes()
    for module in (exchange, ssh):
        vars(module)["agent_zip"] = lambda: agent
    events: list[dict[str, Json]] = []
    outcome = run_plan(make_plan(job), connector, events.append, secrets={})
    connector.close()
    if not isinstance(outcome, Deployed):
        raise SystemExit(f"{outcome}: {events[-3:]}")


if __name__ == "__main__":
    main()
