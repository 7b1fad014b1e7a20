"""Entry of the agent: one request in, its answer out. The table of verbs."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

from . import changing, clean, follow, history, lock, reading, state
from .context import OpFailed
from .request import Request
from .wire import Answers

Json = Any


def main(request: dict[str, Json], nonce: str, zip_bytes: bytes) -> None:
    """Called by the controller's bootstrap. The last line written is the result."""
    answers = Answers(nonce)
    try:
        verb = VERBS.get(str(request.get("verb")))
        if verb is None:
            raise OpFailed("usage", f"this agent has no verb {request.get('verb')!r}")
        params = request.get("params") or {}
        answers.value(verb(Request(params=params, answers=answers, zip_bytes=zip_bytes)))
    except OpFailed as error:
        answers.error(error)
    except OSError as error:
        answers.error(state.io_failed(error, f"answer `{request.get('verb')}`"))
    except Exception as error:
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


def _facts(request: Request) -> Json:
    from . import facts

    found = facts.read_facts(request.params)
    if "state" not in found:
        found["state"] = history.state_facts(request.params)
    return found


def _follow(request: Request) -> Json:
    instance = state.open_instance(request.params)
    deploys = history.read_deploys(instance)
    wanted = request.params.get("deploy")
    past = next((p for p in reversed(deploys) if wanted in (None, p.id)), None)
    if past is None:
        what = f"deploy {wanted}" if wanted else "deploy"
        raise OpFailed("no_deploy", f"there is no {what} on this instance", next_command="specops history")
    from_seq = int(request.params.get("from_seq") or 0)
    return follow.follow(instance, past.id, request.answers, from_seq=from_seq)


def _history(request: Request) -> Json:
    return history.list_history(request.params)


def _lock_show(request: Request) -> Json:
    return {"lock": lock.read_owner(state.open_instance(request.params))}


def _evidence(request: Request) -> Json:
    from . import evidence

    return evidence.bundle(request.params, request.answers.emit)


def _smoke(request: Request) -> Json:
    from . import smoke_op

    with changing.holding(request, "smoke"):
        return smoke_op.run_standalone(_with_zip(request), request.answers.emit)


def _sweep(request: Request) -> Json:
    from . import sweep_op

    with changing.holding(request, "sweep"):
        return sweep_op.run(_with_zip(request), request.answers.emit)


def _with_zip(request: Request) -> dict[str, Json]:
    """The request's params, and where this agent's zip was kept: loads are its child programs."""
    kept = changing.keep_agent(state.open_instance(request.params), request.zip_bytes)
    return {**request.params, "agent_zip": str(kept)}


VERBS: dict[str, Callable[[Request], Json]] = {
    "facts": _facts,
    "follow": _follow,
    "history": _history,
    "status": reading.read_status,
    "logs": reading.read_logs,
    "lock_show": _lock_show,
    "evidence": _evidence,
    "read_file": reading.read_file,
    "run": changing.run,
    "recover": changing.recover,
    "abort": changing.abort,
    "lock_break": changing.break_lock,
    "smoke": _smoke,
    "sweep": _sweep,
    "clean": clean.clean,
}
