"""Records a state folder as an older specops left it, for test_formats.py.

`PYTHONSAFEPATH=1 PYTHONPATH=<folder of the older one>:. python -m tests.faults.record_state`. A deploy is cut
down, agent and guardian both, while its new server loads. What names this machine is taken out.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import specops
from specops.remote import journal, state

from .points import Arm, Halt
from .served import SECRETS, ServedBox, until
from .state_of import FOLDER, PATH, PORT, PYTHON, RECORDED
from .strikes import Struck, kill_both

ENTRY = "starting await"


def main() -> int:
    sys.stdout.write(f"recording {specops.__file__}\n")
    folder = Path(tempfile.mkdtemp(prefix="specops-record-"))
    box = ServedBox(folder / "box", port=PORT)
    try:
        plan = box.deploy_plan()
        struck = Struck(box, Halt(folder, ENTRY, "after"), deploy=plan["id"])
        params = {"plan": plan, "blobs": box.blobs(), "secrets": {"key": SECRETS["request"]}}
        struck.front, struck.out = box.start("run", params, Arm([struck.halt]))
        until(struck.halt.reached)
        kill_both(struck)
        box.finish(struck.front, struck.out)
        until(lambda: (box.deploy_dir(plan["id"]) / "server.json").exists())
        assert not journal.replay_deploy(box.deploy_dir(plan["id"])).ended
        keep(box.deploy_dir(plan["id"]), RECORDED / "deploy", box.folder)
        keep(box.instance.store, RECORDED / "store", box.folder)
    finally:
        box.end()
        shutil.rmtree(folder)
    return 0


def keep(source: Path, target: Path, folder: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for path in source.iterdir():
        if not path.is_file() or not path.stat().st_size or path.suffix == ".log":
            continue
        text = path.read_text().replace(str(folder), FOLDER).replace(sys.executable, PYTHON)
        text = text.replace(os.environ["PATH"], PATH).replace(state.machine_id(), "@MACHINE@")
        text = text.replace(state.boot_id(), "@BOOT@")
        (target / path.name).write_text(text)


if __name__ == "__main__":
    raise SystemExit(main())
