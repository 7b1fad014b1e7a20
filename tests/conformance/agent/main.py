"""An agent that answers on command, to test what carries it: verb -> one kind of answer."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any


def main(request: dict[str, Any], nonce: str, zip_bytes: bytes) -> None:
    def say(event: dict[str, Any]) -> None:
        sys.stdout.write(f"\x1e{nonce} {json.dumps(event)}\n")
        sys.stdout.flush()

    params = request["params"]
    behave = params.get("behave") or (params.get("secrets") or {}).get("behave") or "echo"
    if behave == "echo":
        for index in range(params.get("events", 0)):
            say({"event": "note", "message": str(index)})
        who = {"uid": os.geteuid(), "home": os.path.expanduser("~")}
        say({"event": "result", "ok": True, "value": {"params": params, "zip": len(zip_bytes), **who}})
    elif behave == "noise":
        for stream in (sys.stdout, sys.stderr):
            stream.write("junk " * 100 + "\n")
        sys.stderr.write("x" * params["stderr_bytes"])
        sys.stderr.flush()
        sys.stdout.write("no end of line")
        sys.stdout.write("\x1e0000 " + json.dumps({"event": "result", "ok": True, "value": "forged"}) + "\n")
        say({"event": "result", "ok": True, "value": "true"})
    elif behave == "error":
        say({"event": "result", "ok": False, "error": params["error"]})
    elif behave == "die":
        sys.stderr.write("out of luck\n")
        sys.stderr.flush()
        os._exit(3)
    elif behave == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif behave == "hang":
        say({"event": "note", "message": str(os.getpid())})
        time.sleep(params["seconds"])
        say({"event": "result", "ok": True, "value": "late"})
