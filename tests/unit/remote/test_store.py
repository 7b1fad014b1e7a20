from __future__ import annotations

from pathlib import Path

import pytest

from specops.remote.context import OpFailed
from specops.remote.store import Store, sha256

DATA = b"pristine\n"
NAME = sha256(DATA)


def test_other_bytes_than_the_name_says_come_neither_in_nor_out(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    with pytest.raises(OpFailed, match="should be"):
        store.put(b"other\n", NAME)
    assert not store.has(NAME)
    store.put(DATA, NAME)
    assert store.get(NAME) == DATA
    assert store.path(NAME).stat().st_mode & 0o777 == 0o600
    store.path(NAME).write_bytes(b"rot\n")
    with pytest.raises(OpFailed) as error:
        store.get(NAME)
    assert error.value.code == "backup_damaged"
    store.put(DATA, NAME)
    assert store.get(NAME) == DATA, "what rotted is mended by whoever brings the bytes again"


def test_backups_are_remembered_once_and_survive_a_torn_line(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for _ in range(2):
        store.note_backup(NAME, "/a.py", "d1")
    index = tmp_path / "backups.jsonl"
    assert index.read_text().count(NAME) == 1
    with open(index, "a") as file:
        file.write('{"sha2')
    store.note_backup("0" * 64, "/b.py", "d2")
    assert store.backups() == {NAME, "0" * 64}
