"""A small install with files to change, and requests to the agent by a real fork: guardian, lock, journal."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import select
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specops.remote import lock, notice, state
from specops.remote.main import main

Json = Any
LIMIT_S = 180.0
"""For what never takes longer than a few seconds, on a machine that has nothing else to do."""
NONCE = "0" * 32
ZIP = b"not started by these tests"
OLD = {"a.py": b"A = 'old'\n", "sub/b.py": b"B = 'old'\n", "c.py": None, "gate/new/gate.json": None}
NEW = {
    "a.py": b"A = 'new'\n",
    "sub/b.py": b"B = 'new'\n",
    "c.py": b"C = 'new'\n",
    "gate/new/gate.json": b"{}\n",
}


def sha(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


def step(name: str, phase: str, op: str, args: Json, undo: Json = None) -> dict[str, Json]:
    return {
        "name": name,
        "phase": phase,
        "do": {"op": op, "args": args},
        "undo": undo or {"inert": "only reads"},
    }


class Answer:
    """All that one request wrote, and how its process ended."""

    def __init__(self, raw: bytes, status: int) -> None:
        lines = [json.loads(line.partition(b" ")[2]) for line in raw.splitlines() if line.startswith(b"\x1e")]
        self.status = status
        self.events = [line for line in lines if line.get("event") != "result"]
        self.result: dict[str, Json] | None = next((x for x in lines if x.get("event") == "result"), None)

    @property
    def value(self) -> Json:
        assert self.result is not None, "no result"
        assert self.result["ok"], self.result
        return self.result["value"]

    @property
    def error(self) -> dict[str, Json]:
        assert self.result is not None, "no result"
        assert not self.result["ok"], self.result
        error: dict[str, Json] = self.result["error"]
        return error


@dataclass
class Box:
    folder: Path
    port: int = 30000
    before: dict[str, bytes | None] = field(default_factory=lambda: dict(OLD))
    after: dict[str, bytes | None] = field(default_factory=lambda: dict(NEW))

    def __post_init__(self) -> None:
        self.root = self.folder / "sglang"
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / "__init__.py").write_bytes(b"")
        for name, data in self.before.items():
            if data is not None:
                (self.root / name).parent.mkdir(exist_ok=True)
                (self.root / name).write_bytes(data)
                (self.root / name).chmod(0o640)

    @property
    def ref(self) -> dict[str, Json]:
        return {
            "state": str(self.folder / "state"),
            "port": self.port,
            "python": "/usr/bin/python3",
            "root": str(self.root),
        }

    @property
    def instance(self) -> state.Instance:
        return state.open_instance(self.ref)

    def deploy_dir(self, deploy_id: str = "d1") -> Path:
        return self.instance.deploy(deploy_id)

    def changes(self, *, back: bool = False) -> list[dict[str, Json]]:
        before, after = (self.after, self.before) if back else (self.before, self.after)
        return [
            {"path": str(self.root / n), "before": sha(before[n]), "after": sha(after[n])}
            for n in self.before
        ]

    def steps(self, *, back: bool = False) -> list[dict[str, Json]]:
        """Two swaps of the same first file, so that undoing in the wrong order shows."""
        files = self.changes(back=back)
        first = files[0]
        mid = sha(b"A = 'mid'\n")
        to_mid = [{**first, "after": mid}]
        from_mid = [{**first, "before": mid}, *files[1:]]
        staged = [{"path": f["path"], "sha256": f["after"], "python": True} for f in files if f["after"]]
        staged = [{**f, "python": f["path"].endswith(".py")} for f in staged]
        staged.append({"path": first["path"], "sha256": mid, "python": True})
        check = [{"path": f["path"], "sha256": f["before"]} for f in files]
        return [
            step("check", "check", "files.check", {"files": check}),
            step("back up", "backup", "files.backup", {"files": [f for f in check if f["sha256"]]}),
            step("stage", "stage", "files.stage", {"files": staged}),
            step("first", "swap", "files.swap", {"files": to_mid}, undo_swap(to_mid)),
            step("second", "swap", "files.swap", {"files": from_mid}, undo_swap(from_mid)),
        ]

    def bad_steps(self) -> list[dict[str, Json]]:
        """As `steps`, then one more that finds the new bytes where it wants others."""
        wrong = [{"path": str(self.root / "a.py"), "sha256": "0" * 64}]
        return [*self.steps(), step("smoke", "smoke", "files.check", {"files": wrong})]

    def plan(self, steps: list[dict[str, Json]] | None = None, **fields: Json) -> dict[str, Json]:
        return {
            "format": 1,
            "id": "d1",
            "kind": "deploy",
            "host": "box",
            "instance": self.ref,
            "by": {"user": "ann", "host": "desk", "version": "0"},
            "facts_digest": "0" * 64,
            "summary": {"gate": "none"},
            "steps": self.steps() if steps is None else steps,
            **fields,
        }

    def blobs(self) -> dict[str, str]:
        every = [d for d in (*self.before.values(), *self.after.values(), b"A = 'mid'\n") if d is not None]
        return {str(sha(data)): base64.b64encode(data).decode() for data in every}

    def run(
        self, plan: dict[str, Json] | None = None, wrap: Callable[[], object] | None = None, **more: Json
    ) -> Answer:
        return self.ask("run", {"plan": plan or self.plan(), "blobs": self.blobs(), **more}, wrap)

    def ask(self, verb: str, params: Json = None, wrap: Callable[[], object] | None = None) -> Answer:
        """One request in a forked process, as one exec over SSH would be. `wrap` runs in it first."""
        pid, out = self.start(verb, params, wrap)
        return self.finish(pid, out)

    def start(
        self, verb: str, params: Json = None, wrap: Callable[[], object] | None = None
    ) -> tuple[int, int]:
        request = {"verb": verb, "params": {**self.ref, **(params or {})}}
        out, into = os.pipe()
        pid = os.fork()
        if pid:
            os.close(into)
            return pid, out
        try:
            os.close(out)
            os.dup2(into, 1)
            if wrap:
                wrap()
            main(request, NONCE, ZIP)
        finally:
            os._exit(0)

    def finish(self, pid: int, out: int, limit_s: float = LIMIT_S) -> Answer:
        raw = b""
        end = time.monotonic() + limit_s
        with open(out, "rb", buffering=0) as pipe:
            while select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
                data = pipe.read(65536)
                if not data:
                    break
                raw += data
            else:
                raise AssertionError(f"no end within {limit_s} s: {raw[-2000:]!r}")
        return Answer(raw, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    def await_free(self, limit_s: float = LIMIT_S) -> None:
        """Until neither guardian nor agent is left."""
        end = time.monotonic() + limit_s
        while lock.read_owner(self.instance) is not None:
            assert time.monotonic() < end, "the lock is still held"
            time.sleep(0.03)

    def tree(self) -> dict[str, bytes]:
        """Every file under the root by relative name, leftovers and bytecode included."""
        return {
            p.relative_to(self.root).as_posix(): p.read_bytes() for p in self.root.rglob("*") if p.is_file()
        }

    def is_old(self) -> bool:
        folders = {p.name for p in self.root.rglob("*") if p.is_dir()}
        return self.tree() == {**present(self.before), "__init__.py": b""} and "gate" not in folders

    def is_new(self) -> bool:
        return self.tree() == {**present(self.after), "__init__.py": b""}

    def leftovers(self) -> list[str]:
        """Half written files and what a closed deploy has no use for."""
        inside = [p for p in (self.folder / "state").rglob("*") if p.name.startswith(".")]
        unused = [p for p in (self.folder / "state").rglob("*") if p.name in ("blobs", "abort.json")]
        found = sorted(str(p) for p in (*inside, *unused, *self.root.rglob(".*")))
        return [*found, *(f"note {note}" for note in notice.read(self.instance))]


def undo_swap(files: list[dict[str, Json]]) -> dict[str, Json]:
    return {"op": "files.restore", "args": {"files": files}}


def present(files: dict[str, bytes | None]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if data is not None}
