"""The job by plain mitogen: functions of this file, called on the host."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import shutil
import subprocess
import sys

import mitogen.utils


def read_facts() -> str:
    with open("/proc/meminfo") as file:
        memory = file.readline()
    return json.dumps([*os.uname(), os.getuid(), os.cpu_count(), sys.version, memory])


def read_digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def back_up(path: str, folder: str) -> str:
    os.makedirs(folder, exist_ok=True)
    shutil.copy2(path, folder)
    return read_digest(path)


def write_file(path: str, data: bytes) -> None:
    temp = path + ".new"
    with open(temp, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(temp, os.stat(path).st_mode & 0o7777)
    os.replace(temp, path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def run(argv: list) -> bytes:  # type: ignore[type-arg]
    return subprocess.check_output(argv)


def main(router):  # type: ignore[no-untyped-def]
    job = json.loads(os.environ["OPS_JOB"])
    host = router.ssh(
        hostname=job["host"],
        port=job["port"],
        username=job["user"],
        identity_file=job["identity"],
        python_path=job["python"],
        check_host_keys="enforce",
        ssh_args=["-o", "UserKnownHostsFile=" + job["known_hosts"]],
    )
    for name in job["files"] if sys.argv[1] == "change" else ():
        host.call(back_up, job["folder"] + "/" + name, job["backups"])
    if sys.argv[1] == "plan":
        host.call(read_facts)
    for name in job["files"]:
        path = job["folder"] + "/" + name
        with open(job["source"] + "/" + name, "rb") as file:
            new = file.read()
        if sys.argv[1] == "change":
            host.call(write_file, path, new)
        elif host.call(read_digest, path) != hashlib.sha256(new).hexdigest():
            old = host.call(read_file, path).decode().splitlines()
            print("\n".join(difflib.unified_diff(old, new.decode().splitlines(), path, path, lineterm="")))
    for argv in job["commands"] if sys.argv[1] == "change" else ():
        host.call(run, argv)


if __name__ == "__main__":
    mitogen.utils.run_with_router(main)
