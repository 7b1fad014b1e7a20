"""Following a deploy: its events as they come, its journal for how it ended."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import journal, lock
from .context import OpFailed
from .state import Instance
from .wire import Answers

Json = Any
TICK_S = 0.02
HOLDER_CHECK_S = 1.0
RELEASE_S = 3.0


def follow(
    instance: Instance, deploy_id: str, answers: Answers, *, from_seq: int = 0
) -> dict[str, Json] | None:
    """Send every event after `from_seq`, until the deploy closes; its end, or None once nobody reads.

    Raises `unfinished` when the deploy is not closed and nothing works on it any more.
    """
    deploy_dir = instance.deploy(deploy_id)
    events = Events(deploy_dir / "events.jsonl")
    size, closed = -1, False
    quiet_since = time.monotonic()
    while not answers.gone():
        now = _size(deploy_dir / "journal.jsonl")
        if now != size:
            size, closed = now, journal.replay_deploy(deploy_dir).closed is not None
        sent = _send(events, from_seq, answers)
        if closed:
            _await_release(instance, deploy_id)
            _send(events, from_seq, answers)  # the end is in the journal before whoever follows is told of it
            return ending(deploy_dir)
        if sent:
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since > HOLDER_CHECK_S:
            _refuse_abandoned(instance, deploy_id)
            quiet_since = time.monotonic()
        time.sleep(TICK_S)
    return None


def _send(events: Events, from_seq: int, answers: Answers) -> int:
    """How many there were, those before `from_seq` too."""
    sent = 0
    for event in events.read():
        if int(event.get("seq") or 0) > from_seq:
            answers.emit(event)
        sent += 1
    return sent


def _await_release(instance: Instance, deploy_id: str) -> None:
    """The deploy has ended, its agent is about to: whoever asks next must find the lock free."""
    end = time.monotonic() + RELEASE_S
    while time.monotonic() < end:
        owner = lock.read_owner(instance)
        # An empty answer is a holder that went while it was asked.
        if owner is None or owner.get("deploy") not in (None, deploy_id):
            return
        time.sleep(0.01)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def ending(deploy_dir: Path) -> dict[str, Json]:
    """The result of a closed deploy: {deploy, kind, how, cause, serving, failures, checks}."""
    now = journal.replay_deploy(deploy_dir)
    closed = now.closed or {}
    return {
        "deploy": deploy_dir.name,
        "kind": (now.opened or {}).get("kind"),
        "how": closed.get("how"),
        "cause": closed.get("cause"),
        "serving": closed.get("serving"),
        "failures": closed.get("failures") or [],
        "checks": now.checks,
        "inconclusive": closed.get("checks") or [],
    }


def _refuse_abandoned(instance: Instance, deploy_id: str) -> None:
    if lock.read_owner(instance) is not None:
        return
    now = journal.replay_deploy(instance.deploy(deploy_id))
    if now.closed is None:
        raise OpFailed(
            "unfinished",
            f"deploy {deploy_id} stopped in {now.phase} and nothing works on it any more",
            detail={"id": deploy_id, "phase": now.phase},
            host_state="in between: the journal knows what to take back",
            next_command="specops recover",
        )


class Events:
    """The whole lines of a growing file, each once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> Iterator[dict[str, Json]]:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                yield event
