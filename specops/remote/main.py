"""Entry of the agent: one request in, its answer out. The table of verbs."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from . import state
from .context import OpFailed
from .request import Request
from .wire import Answers

Json = Any


def main(request: dict[str, Json], nonce: str, zip_bytes: bytes) -> None:
    """Called by the controller's bootstrap. The last line written is the result."""
    answers = Answers(nonce)
    try:
        place = VERBS.get(str(request.get("verb")))
        if place is None:
            raise OpFailed("usage", f"this agent has no verb {request.get('verb')!r}")
        params = request.get("params") or {}
        module, _, name = place.partition(":")
        verb = getattr(import_module(f".{module}", __package__), name)
        answers.value(verb(Request(params=params, answers=answers, zip_bytes=zip_bytes)))
    except OpFailed as error:
        answers.error(error)
    except OSError as error:
        answers.error(state.io_failed(error, f"answer `{request.get('verb')}`"))
    except Exception as error:
        import traceback  # not at the top: every request would wait for it

        answers.error(
            OpFailed(
                "internal",
                f"the agent failed in a way it does not know: {type(error).__name__}: {error}",
                detail=traceback.format_exc(),
                next_command="specops status",
            )
        )


def child(argv: list[str]) -> int:
    """`python -B agent.zip <name>`: a child program of the agent, in SGLang's environment."""
    name = argv[0] if argv else ""
    if name == "child-smoke":
        from . import smoke_child

        return int(smoke_child.main() or 0)
    if name == "child-sweep":
        from . import sweep_child

        return int(sweep_child.main() or 0)
    if name == "child-keeper":
        from . import keeper

        return keeper.main(argv[1:])
    sys.stderr.write(f"no child program {name!r}: child-smoke, child-sweep or child-keeper\n")
    return 2


VERBS = {
    "facts": "facts:answer",
    "follow": "reading:follow_deploy",
    "history": "reading:list_history",
    "status": "reading:read_status",
    "logs": "reading:read_logs",
    "lock_show": "reading:show_lock",
    "evidence": "reading:read_evidence",
    "read_file": "reading:read_file",
    "run": "changing:run",
    "recover": "changing:recover",
    "abort": "changing:abort",
    "lock_break": "changing:break_lock",
    "smoke": "load_verbs:smoke",
    "sweep": "load_verbs:sweep",
    "clean": "clean:clean",
}
"""Verb -> module:function. Only what a request needs is loaded: the zip's modules are compiled each time."""
