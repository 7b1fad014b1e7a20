"""How each tool is started for each job: argv, environment, and what it leaves behind to be ended."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.ops.host import FILES, RELEASE, Host, content, job_env, sha256
from benchmarks.ops.job_specops import agent_with_commands
from specops.steps.diff import make_diff

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
REQUIREMENTS = ("fabric==3.2.3", "pyinfra==3.10.0", "ansible-core==2.19.14", "mitogen==0.3.54")
TOOLS = ("specops", "mitogen", "fabric", "pyinfra", "ansible")


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    argv: list[str]
    env: Mapping[str, str]
    control_sockets: Path | None = None
    """Folder of OpenSSH masters that outlive the command."""


def competitors() -> Path:
    """The `bin` folder of an environment with just these releases, made once in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specops" / "ops-overhead"
    folder = cache / hashlib.sha256(repr((sys.version, REQUIREMENTS)).encode()).hexdigest()[:12]
    if not (folder / ".ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        install = [str(folder / "bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*install, *REQUIREMENTS], check=True)
        (folder / ".ready").touch()
    return folder / "bin"


def write_specops_files(host: Host, job: dict[str, Any]) -> None:
    """Inventory, playbook and patch for `specops plan`, and the agent for the change."""
    (host.folder / "agent.zip").write_bytes(agent_with_commands())
    patch = host.folder / "patches/bench"
    patch.mkdir(parents=True)
    changes = []
    for name in FILES:
        old, new = content(name, "old"), content(name, "new")
        (patch / f"{name}.diff").write_text(make_diff(old, new, name))
        changes.append({"path": name, "before": sha256(old), "after": sha256(new), "diff": f"{name}.diff"})
    files = {"files": changes, "modules": []}
    described = {"id": "bench", "title": "five files", "releases": {RELEASE: files}}
    (patch / "patch.yaml").write_text(json.dumps(described))
    model = {"path": "hub/model"}
    (host.folder / "playbook.yaml").write_text(json.dumps({"name": "bench", "model": model}))


def write_inventory(host: Host, job: dict[str, Any]) -> Path:
    box = {
        "address": job["host"],
        "port": job["port"],
        "user": job["user"],
        "identity_file": job["identity"],
        "known_hosts": job["known_hosts"],
        "python": job["python"],
        "state": job["state"],
        "playbook": str(host.folder / "playbook.yaml"),
        "instances": [{"name": "one", "port": 31993}],
    }
    path = host.folder / "inventory.yaml"
    path.write_text(json.dumps({"hosts": {"box": box}}))
    return path


def call_of(tool: str, what: str, host: Host, job: dict[str, Any]) -> Call:
    """`what`: plan or change."""
    env = job_env(job)
    if tool == "specops":
        return _specops(what, host, {**env, "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT))}, job)
    bin_folder = competitors()
    python = str(bin_folder / "python")
    if tool in ("fabric", "mitogen"):
        return Call(argv=[python, str(HERE / f"job_{tool}.py"), what], env=env)
    if tool == "pyinfra":
        mode = ["--dry", "--diff"] if what == "plan" else ["--yes"]
        files = [str(HERE / "pyinfra_inventory.py"), str(HERE / f"pyinfra_{what}.py")]
        return Call(argv=[str(bin_folder / "pyinfra"), *mode, *files], env=env)
    return _ansible(what, bin_folder, host, env, job)


def _specops(what: str, host: Host, env: dict[str, str], job: dict[str, Any]) -> Call:
    if what == "plan":
        words = ["plan", "--host", "box", "--inventory", str(write_inventory(host, job)), "--json"]
        patch = ["--patches", str(host.folder / "patches"), "--patch", "bench"]
        return Call(argv=[sys.executable, "-m", "specops", *words, *patch], env=env)
    before = {name: sha256(content(name, "old")) for name in FILES}
    more = {**job, "agent": str(host.folder / "agent.zip"), "before": before}
    env = {**env, "OPS_JOB": json.dumps(more)}
    return Call(argv=[sys.executable, "-m", "benchmarks.ops.job_specops"], env=env)


def _ansible(what: str, bin_folder: Path, host: Host, env: dict[str, str], job: dict[str, Any]) -> Call:
    sockets = host.folder / "cp"
    settings = {
        "ANSIBLE_PIPELINING": "true",
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(sockets),
        "ANSIBLE_PYTHON_INTERPRETER": job["python"],
        "ANSIBLE_LOCAL_TEMP": str(host.folder / "ansible"),
        "ANSIBLE_SSH_ARGS": "-C -o ControlMaster=auto -o ControlPersist=60s -o IdentitiesOnly=yes "
        f"-o UserKnownHostsFile={job['known_hosts']}",
    }
    where = ["-i", f"{job['host']},", "-e", f"ansible_port={job['port']}"]
    who = ["-u", job["user"], "--private-key", job["identity"]]
    mode = ["--check", "--diff"] if what == "plan" else []
    argv = [str(bin_folder / "ansible-playbook"), *where, *who, *mode, str(HERE / f"ansible_{what}.yaml")]
    return Call(argv=argv, env={**env, **settings}, control_sockets=sockets)
