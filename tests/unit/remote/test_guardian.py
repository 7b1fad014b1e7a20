from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from specops.remote import files, journal
from specops.remote.context import Context
from tests.faults.box import Box, step

SHOW = """
import json, os, signal
print(json.dumps({
    "fds": sorted(int(n) for n in os.listdir("/proc/self/fd"))[:-1],
    "stdin": os.path.realpath("/proc/self/fd/0"),
    "ignored": [n for n in (1, 2, 15) if signal.getsignal(n) == signal.SIG_IGN],
    "cwd": os.getcwd(), "umask": os.umask(0), "oom": open("/proc/self/oom_score_adj").read().strip(),
}))
"""


def add() -> None:
    def look(ctx: Context, args: dict[str, Any]) -> dict[str, Any]:
        child = subprocess.run(
            [sys.executable, "-c", SHOW], stdout=subprocess.PIPE, close_fds=False, check=True
        )
        return {
            "child": json.loads(child.stdout),
            "sid": os.getsid(0),
            "pgid": os.getpgid(0),
            "pid": os.getpid(),
            "guardian": os.getppid(),
            "guardian_oom": Path(f"/proc/{os.getppid()}/oom_score_adj").read_text().strip(),
        }

    files.OPS["files.look"] = look


def test_what_the_agent_starts_has_nothing_of_the_login(tmp_path: Path) -> None:
    box = Box(tmp_path / "box")
    leak, _ = os.pipe()
    os.set_inheritable(leak, True)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert box.run(box.plan([step("look", "launch", "files.look", {})]), add).value["how"] == "deployed"
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    seen = journal.replay_deploy(box.deploy_dir()).done[0]
    child = seen["child"]
    assert child["fds"] == [0, 1, 2]
    assert child["stdin"] == "/dev/null"
    assert child["ignored"] == []
    assert (child["cwd"], child["umask"]) == ("/", 0o022)
    assert (seen["sid"], seen["pgid"]) == (seen["guardian"], seen["pid"])
    own = Path("/proc/self/oom_score_adj").read_text().strip()
    assert child["oom"] == own
    assert seen["guardian_oom"] == ("-900" if may_lower_oom_score() else own)


def may_lower_oom_score() -> bool:
    """Root may not either where a container took the privilege away."""
    code = "from pathlib import Path; Path('/proc/self/oom_score_adj').write_text('-900')"
    return (
        subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL, check=False).returncode == 0
    )
