"""The recorded state folder of an older version, and how it is put on a box (record_state.py made it)."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from specops.remote import capture, state

from .served import ServedBox

RECORDED = Path(__file__).with_name("state_1")
FOLDER, PYTHON, PATH = "@FOLDER@", "@PYTHON@", "@PATH@"
PORT = 24567
"""Of the recording; its deploy and cookie are named by it too."""


def put(box: ServedBox) -> str:
    """As if it had been there all the time. Gives back the id of the unfinished deploy."""
    deploy = f"d{box.port}"
    target = box.deploy_dir(deploy)
    state.make_private(target.parent)
    for source, into in ((RECORDED / "deploy", target), (RECORDED / "store", box.instance.store)):
        shutil.copytree(source, into)
        into.chmod(0o700)
        for path in into.iterdir():
            text = path.read_text().replace(FOLDER, str(box.folder)).replace(PYTHON, sys.executable)
            path.write_text(text.replace(PATH, os.environ["PATH"]).replace(str(PORT), str(box.port)))
            path.chmod(0o600)
    vault = json.loads((target / "vault.json").read_text())
    # The same user and limits as whoever runs the tests: others may not be taken on by everybody.
    mine = {"uid": os.getuid(), "gid": os.getgid(), "limits": capture.read_limits(os.getpid())}
    vault["old_server"] |= mine
    (target / "vault.json").write_text(json.dumps(vault))
    return deploy
