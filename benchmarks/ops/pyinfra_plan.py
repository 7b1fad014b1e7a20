"""Facts and plan by pyinfra, to be run with --dry --diff."""

import json
import os

from pyinfra import host
from pyinfra.facts import hardware, server
from pyinfra.operations import files

JOB = json.loads(os.environ["OPS_JOB"])

for fact in (server.Hostname, server.User, server.KernelVersion, hardware.Cpus, hardware.Memory):
    host.get_fact(fact)
host.get_fact(server.Command, command=f"{JOB['python']} -V")
for name in JOB["files"]:
    files.put(name=name, src=f"{JOB['source']}/{name}", dest=f"{JOB['folder']}/{name}", mode="640")
