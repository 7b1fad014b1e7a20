"""Five planted secrets: none is in what is shown, kept or fetched, but for the vault and raw logs."""

from __future__ import annotations

import base64
import io
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from specops.connect import exchange
from specops.connect.local import LocalConnector
from specops.connect.payload import agent_zip
from specops.engine.deploy import run_plan
from specops.engine.outcome import RolledBack
from specops.engine.plan import Outage, Plan, new_id
from specops.engine.secrets import hide_secrets
from specops.remote import procs
from specops.steps.server import Clocks, LaunchSpec, capture, launch, stop
from specops.steps.step import Command, Inert, Step
from tests.unit.remote.servers import STANDIN, await_true, serving

SECRETS = tuple(f"planted-{place}-secret" for place in ("argv", "env", "playbook", "url", "log"))
ARGV, ENV, PLAYBOOK, URL, LOG = SECRETS
SPEAKS = """os.environ.get("STANDIN_LOG") or "[]\""""
"""Of the stand-in: here it reads a secret that nobody gave it from a file of its own."""
RAW = {"vault.json", "server.log", "old-server.log", "agent.stderr"}
"""Never leave the host as they are, and only their owner may read them."""


@pytest.fixture(autouse=True)
def real_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    data = agent_zip()
    monkeypatch.setattr(exchange, "agent_zip", lambda: data)


def make_plan(folder: Path, pid: int, ticks: int, port: int) -> Plan:
    script = folder / "standin.py"
    source = Path(STANDIN).read_text()
    assert SPEAKS in source
    script.write_text(source.replace(SPEAKS, "open('said.json').read()"))
    line = f"server_args=ServerArgs(model_path='/m', api_key='{LOG}', port={port})"
    (folder / "said.json").write_text(json.dumps([line]))
    spec = LaunchSpec(
        argv=(sys.executable, "-S", str(script), "sglang.launch_server", "--port", str(port)),
        cwd=str(folder),
        base="old_server",
        set={"WANDB_API_KEY": PLAYBOOK, "HTTPS_PROXY": f"http://ann:{URL}@proxy:3128"},
        port=port,
        cookie=new_id(),
    )
    wrong = Step(
        name="a check that fails",
        phase="ready",
        do=Command(op="files.check", args={"files": [{"path": f"{folder}/none", "sha256": "0" * 64}]}),
        undo=Inert("only reads"),
    )
    clocks = Clocks(progress_s=60, cap_s=120)
    return Plan(
        id=spec.cookie,
        kind="deploy",
        host="box",
        instance={"state": f"{folder}/state", "port": port, "python": sys.executable, "root": str(folder)},
        facts_digest="",
        summary={},
        steps=(
            capture(pid, ticks, port),
            stop(pid, ticks, port, drain_s=0, term_s=10, clocks=clocks),
            launch(spec),
            wrong,
        ),
        outage=Outage(load_s=None, restore_s=None, replaces=None),
        launch=spec.argv,
        env_changes=dict(spec.set),
    )


def test_nothing_shows_a_planted_secret(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").touch()
    said: list[Any] = []
    reached: list[str] = []

    def listen(event: dict[str, Any]) -> None:
        said.append(event)
        entry = event.get("entry") or {}
        facts = entry.get("facts") or {}
        if entry.get("entry") == "done" and facts.get("cookie") and not reached:
            environ = await_true(lambda: procs.read_environ(facts["pid"]))
            reached.extend(environ[name] for name in ("WANDB_API_KEY", "HTTPS_PROXY"))

    connector = LocalConnector(name="box", python=sys.executable)
    proxy = f"http://ann:{URL}@proxy:3128"
    with serving(tmp_path, "--api-key", ARGV, HF_TOKEN=ENV, HTTP_PROXY=proxy) as old:
        plan = hide_secrets(make_plan(tmp_path, old.pid, old.start_ticks, old.port))
        said.append(plan.as_json())
        outcome = run_plan(plan, connector, listen, secrets=plan.secrets)
        said.append(repr((plan, outcome)))
        instance = {"instance": dict(plan.instance)}
        for verb in ("facts", "status", "history", "lock_show"):
            said.append(connector.call(verb, {**instance, "port": old.port}))
        logs = [connector.call("logs", {**instance, "which": which}) for which in ("server", "old-server")]
        evidence: Any = connector.call("evidence", instance)
        with tarfile.open(fileobj=io.BytesIO(base64.b64decode(evidence["base64"]))) as archive:
            for member in archive:
                file = archive.extractfile(member)
                said.append(file.read().decode() if file else "")
    assert isinstance(outcome, RolledBack)
    assert reached == [PLAYBOOK, proxy]
    assert "api_key='[redacted]'" in json.dumps(logs)
    text = json.dumps([*said, *logs], default=str)
    assert [secret for secret in SECRETS if secret in text] == []
    kept = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert [path for path in kept if path.stat().st_mode & 0o077] == []
    leaks = [
        (path.name, secret)
        for path in kept
        for secret in SECRETS
        if path.name not in RAW and secret.encode() in path.read_bytes()
    ]
    assert leaks == []
