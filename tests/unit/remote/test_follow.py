"""Whoever follows a deploy is told of its end, also where the journal has it long before the events do."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

from specops.remote import lock
from specops.remote.deploy import Deploy
from specops.remote.follow import follow
from specops.remote.journal import Journal
from specops.remote.state import Instance
from specops.remote.wire import Answers

LATE_S = 0.4


class Heard(Answers):
    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def emit(self, event: dict[str, Any]) -> None:
        self.events.append(event)

    def gone(self) -> bool:
        return False


def test_the_last_event_may_come_after_the_journals_last_entry(tmp_path: Path) -> None:
    instance = Instance(port=30000, root=tmp_path, machine=tmp_path / "state")
    folder = instance.deploy("20260101-000000-0000")
    folder.mkdir(parents=True)
    held = lock.take(instance)
    held.answer_in_thread(lambda: {"pid": os.getpid(), "deploy": folder.name})
    Journal(folder).append({"entry": "closed", "how": "rolled back"})

    def end() -> None:
        time.sleep(LATE_S)
        Deploy(instance, folder.name, tmp_path).emit({"event": "journal", "entry": {"entry": "closed"}})
        held.close()

    ending, heard = threading.Thread(target=end), Heard()
    ending.start()
    told = follow(instance, folder.name, heard)
    ending.join()

    assert told is not None
    assert told["how"] == "rolled back"
    assert [event["event"] for event in heard.events] == ["journal"]
