"""The job by pyinfra; with --dry --diff only its facts and its plan."""

import json
import os
import shlex

from pyinfra.operations import files, server

JOB = json.loads(os.environ["OPS_JOB"])
PATHS = [f"{JOB['folder']}/{name}" for name in JOB["files"]]

server.shell(
    name="back up",
    commands=[
        f"mkdir -p {shlex.quote(JOB['backups'])} && cp -p {shlex.join(PATHS)} {shlex.quote(JOB['backups'])}/"
    ],
)
for name, path in zip(JOB["files"], PATHS, strict=True):
    files.put(name=name, src=f"{JOB['source']}/{name}", dest=path, mode="640")
server.shell(name="sync", commands=[f"sync {shlex.join(PATHS)} {shlex.quote(JOB['folder'])}"])
server.shell(name="commands", commands=[shlex.join(command) for command in JOB["commands"]])
