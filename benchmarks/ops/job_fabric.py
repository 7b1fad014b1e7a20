"""The job by plain Fabric, as its documentation would have it: run and put, over one connection."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import shlex
import sys
from pathlib import Path

from fabric import Connection
from paramiko import RejectPolicy

JOB = json.loads(os.environ["OPS_JOB"])
PATHS = [f"{JOB['folder']}/{name}" for name in JOB["files"]]


def connect() -> Connection:
    link = Connection(
        JOB["host"], user=JOB["user"], port=JOB["port"], connect_kwargs={"key_filename": JOB["identity"]}
    )
    link.client.load_host_keys(JOB["known_hosts"])
    link.client.set_missing_host_key_policy(RejectPolicy())
    return link


def quiet(link: Connection, command: str) -> str:
    return str(link.run(command, hide=True, in_stream=False).stdout)


def plan(link: Connection) -> None:
    for command in ("hostname", "id -un", "uname -r", "nproc", "grep Mem /proc/meminfo"):
        quiet(link, command)
    quiet(link, f"{shlex.quote(JOB['python'])} -V")
    found = [line.split()[0] for line in quiet(link, f"sha256sum {shlex.join(PATHS)}").splitlines()]
    for name, path, digest in zip(JOB["files"], PATHS, found, strict=True):
        new = Path(JOB["source"], name).read_bytes()
        if hashlib.sha256(new).hexdigest() != digest:
            old = quiet(link, f"cat {shlex.quote(path)}")
            diff = difflib.unified_diff(old.splitlines(), new.decode().splitlines(), path, path, lineterm="")
            print("\n".join(diff))


def change(link: Connection) -> None:
    backups = shlex.quote(JOB["backups"])
    quiet(
        link, f"mkdir -p {backups} && cp -p {shlex.join(PATHS)} {backups}/ && sha256sum {shlex.join(PATHS)}"
    )
    for name, path in zip(JOB["files"], PATHS, strict=True):
        link.put(str(Path(JOB["source"], name)), f"{path}.new")
    temps = shlex.join([f"{path}.new" for path in PATHS])
    moves = " && ".join(f"mv {shlex.quote(path + '.new')} {shlex.quote(path)}" for path in PATHS)
    quiet(link, f"sync {temps} && {moves} && sync {shlex.quote(JOB['folder'])}")
    for command in JOB["commands"]:
        quiet(link, shlex.join(command))


if __name__ == "__main__":
    with connect() as opened:
        {"plan": plan, "change": change}[sys.argv[1]](opened)
