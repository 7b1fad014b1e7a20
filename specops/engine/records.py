"""Records: what the hosts' journals told, kept on this machine in SQLite; a cache, never the truth.

One row a deploy, rollback, smoke test or sweep, bound to its host, boot, patches and server arguments. A file
that SQLite cannot read is put aside and begun again: asking the hosts fills it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from specops.errors import SpecopsError

Json = Any
SCHEMA = """
create table if not exists records (
  host text not null, port integer not null, kind text not null, id text not null,
  at real, closed real, how text, boot_id text, release text, patches text, server_args text,
  raw text not null,
  primary key (host, port, kind, id)
);
create index if not exists records_at on records (at);
"""
WAIT_S = 10.0


def records_path() -> Path:
    """Below the user's state folder."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "specops" / "history.sqlite"


def remember(host: str, port: int, history: Mapping[str, Json]) -> None:
    """Take over the answer of the agent's `history`. Raises SpecopsError where the file cannot be written."""
    rows = [
        *(_of_deploy(deploy) for deploy in history.get("deploys") or ()),
        *(_of_sweep(sweep) for sweep in history.get("sweeps") or ()),
        *(_of_smoke(smoke) for smoke in history.get("smokes") or ()),
    ]
    with _open() as base:
        base.executemany(
            "insert or replace into records values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(host, port, *row) for row in rows],
        )


def recall(host: str | None, limit: int | None) -> list[dict[str, Json]]:
    """Newest first: {host, port, kind, id, at, closed, how, boot_id, release, patches, server_args, raw}."""
    with _open() as base:
        found = base.execute(
            "select * from records where ? is null or host = ? order by at desc limit ?",
            (host, host, -1 if limit is None else limit),
        ).fetchall()
    return [
        {
            name: json.loads(row[name])
            if name in ("patches", "server_args", "raw") and row[name]
            else row[name]
            for name in row.keys()  # noqa: SIM118 - a row iterates over its values
        }
        for row in found
    ]


@contextlib.contextmanager
def _open() -> Iterator[sqlite3.Connection]:
    path = records_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        base = _connect(path)
    except (OSError, sqlite3.Error) as error:
        raise SpecopsError(f"the history on this machine, {path}, cannot be opened: {error}") from error
    try:
        with base:
            yield base
    except sqlite3.Error as error:
        raise SpecopsError(f"the history on this machine, {path}, failed: {error}") from error
    finally:
        base.close()


def _connect(path: Path) -> sqlite3.Connection:
    """A damaged file is put aside."""
    try:
        return _start(path)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise
        path.replace(path.with_name(f"{path.name}.damaged"))
        return _start(path)


def _start(path: Path) -> sqlite3.Connection:
    base = sqlite3.connect(path, timeout=WAIT_S)
    try:
        base.row_factory = sqlite3.Row
        base.executescript(SCHEMA)
    except sqlite3.Error:
        base.close()
        raise
    path.chmod(0o600)
    return base


def _row(
    raw: Mapping[str, Json],
    *,
    kind: str,
    at: Json,
    closed: Json,
    how: Json,
    release: Json,
    patches: Json,
    args: Json,
) -> tuple[Json, ...]:
    texts = [json.dumps(value, ensure_ascii=False) for value in (patches, args, raw)]
    return kind, raw["id"], at, closed, how, raw.get("boot_id"), release, *texts


def _of_deploy(deploy: Mapping[str, Json]) -> tuple[Json, ...]:
    summary = deploy.get("summary") or {}
    files = {file["path"]: file.get("after") for file in deploy.get("files") or ()}
    return _row(
        deploy,
        kind=str(deploy.get("kind") or "deploy"),
        at=deploy.get("opened_at"),
        closed=deploy.get("closed_at"),
        how=deploy.get("how") or f"in phase {deploy.get('phase')}",
        release=summary.get("release"),
        patches={"ids": summary.get("patches") or [], "files": files},
        args=deploy.get("argv") or [],
    )


def _of_sweep(sweep: Mapping[str, Json]) -> tuple[Json, ...]:
    about = sweep.get("about") or {}
    return _row(
        sweep,
        kind="sweep",
        at=sweep.get("started"),
        closed=sweep.get("closed"),
        how=sweep.get("ended"),
        release=about.get("release"),
        patches=about.get("patches") or {},
        args=about.get("server") or {},
    )


def _of_smoke(smoke: Mapping[str, Json]) -> tuple[Json, ...]:
    return _row(
        smoke,
        kind="smoke",
        at=smoke.get("started"),
        closed=smoke.get("closed"),
        how=smoke.get("verdict"),
        release=smoke.get("release"),
        patches={},
        args={"gate": smoke.get("gate"), "threshold": smoke.get("threshold")},
    )
