"""pyinfra's inventory of the benchmark's host."""

import json
import os

JOB = json.loads(os.environ["OPS_JOB"])
hosts = [
    (
        JOB["host"],
        {
            "ssh_port": JOB["port"],
            "ssh_user": JOB["user"],
            "ssh_key": JOB["identity"],
            "ssh_known_hosts_file": JOB["known_hosts"],
            "ssh_strict_host_key_checking": "yes",
        },
    )
]
