"""The verbs that change something: run a plan, recover, abort, break a lock."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import executor, follow, guardian, history, journal, lock, notice, procs, settle, state, store
from .context import OpFailed
from .deploy import Deploy
from .guardian import Job
from .plan import check_plan
from .request import Request
from .state import Instance

Json = Any
READER_CHECK_S = 0.5


def run(request: Request) -> Json:
    """params: plan, blobs {sha256: base64}, secrets {name: value}, why. Starts it detached, then follows."""
    plan = check_plan(request.params.get("plan"))
    instance = state.open_instance(plan)
    held = lock.take(instance)
    try:
        _refuse_unfinished(instance)
        history.drop_unopened(instance)
        notice.sweep(instance)
        agent_zip = keep_agent(instance, request.zip_bytes)
        _open_deploy(instance, plan, request, agent_zip)
    except BaseException:
        held.close()
        raise
    why = str(request.params.get("why") or plan["kind"])
    guardian.start(Job(instance, plan["id"], agent_zip, why, executor.execute), held)
    return follow.follow(instance, plan["id"], request.answers)


def recover(request: Request) -> Json:
    """params: an instance reference, deploy (default: the unfinished one), force. Needs the journal alone.

    `force`: files that somebody else changed during the deploy are put back too; their bytes are kept.
    """
    instance = state.open_instance(request.params)
    held = lock.take(instance)
    try:
        deploys = history.read_deploys(instance)
        history.drop_unopened(instance)
        notice.sweep(instance)
        wanted = request.params.get("deploy")
        owed = next((p for p in reversed(deploys) if not p.now.ended and wanted in (None, p.id)), None)
        if owed is None:
            held.close()
            return {
                "deploy": None,
                "how": "nothing to recover",
                "cause": None,
                "serving": None,
                "failures": [],
            }
        agent_zip = keep_agent(instance, request.zip_bytes)
        deploy = Deploy(instance, owed.id, agent_zip)
        seen = deploy.last_event()
        cause = _cause_of_recovery(owed)
        if not owed.now.committed:
            # Also opens a failed rollback again, so that its old `closed` is not taken for the new one.
            with state.naming_io_errors("write the journal", "nothing was changed by this request"):
                deploy.record({"entry": "settling", "cause": cause})
    except BaseException:
        held.close()
        raise
    force = bool(request.params.get("force"))
    job = Job(instance, owed.id, agent_zip, "recover", lambda d, _: settle.settle(d, cause, force=force))
    guardian.start(job, held)
    return follow.follow(instance, owed.id, request.answers, from_seq=seen)


def _cause_of_recovery(owed: history.Past) -> dict[str, Json]:
    if owed.now.cause:
        return owed.now.cause
    during = owed.now.in_step()
    rebooted = (owed.now.opened or {}).get("boot_id") not in (None, "", state.boot_id())
    why = "the host was rebooted" if rebooted else "its agent and guardian died"
    return {
        "id": "rebooted" if rebooted else "abandoned",
        "message": f"{why}" + (f" during {during}" if during else ""),
        "step": during or None,
        "phase": owed.now.phase,
    }


def abort(request: Request) -> Json:
    """params: an instance reference, reason. Tells the running deploy to end; it settles by itself."""
    instance = state.open_instance(request.params)
    owner = lock.read_owner(instance)
    if not owner or not owner.get("deploy"):
        raise OpFailed(
            "no_deploy",
            "no deploy is running on this instance"
            if not owner
            else f"the lock is held for {owner.get('why')}",
            host_state="nothing was changed",
            next_command="specops status",
        )
    _tell(instance, owner, str(request.params.get("reason") or "asked for"))
    return {"deploy": owner["deploy"], "told": True, "owner": owner}


def break_lock(request: Request) -> Json:
    """params: an instance reference, reason, force. -> {"broken": "nothing held" | "told" | "killed", owner}.

    The kernel frees a dead holder's lock, so there is only ever a live one: it is told to end and
    settle; with `force` it is killed, and its guardian settles.
    """
    instance = state.open_instance(request.params)
    reason = str(request.params.get("reason") or "")
    if not reason:
        raise OpFailed(
            "usage", "breaking a lock needs a reason", next_command="specops lock break --reason …"
        )
    owner = lock.read_owner(instance)
    if owner is None:
        return {"broken": "nothing held", "owner": None}
    if not owner.get("pid"):
        raise OpFailed("locked", "the holder does not answer, so it is not known who it is", detail=owner)
    if not request.params.get("force"):
        _tell(instance, owner, f"lock broken: {reason}")
        return {"broken": "told", "owner": owner}
    _signal(owner, signal.SIGKILL)
    return {"broken": "killed", "owner": owner}


@contextlib.contextmanager
def holding(request: Request, why: str) -> Iterator[None]:
    """Hold the instance's lock in this process, for a request that ends with its connection.

    A broken lock, or a reader that went away, raises `aborted` in it.
    """
    instance = state.open_instance(request.params)
    held = lock.take(instance)
    since = time.time()

    def owner() -> dict[str, Json]:
        return lock.describe_owner(pid=os.getpid(), deploy=None, phase=why, since=since, why=why)

    def end(number: int, _: object) -> None:
        raise OpFailed("aborted", f"the {why} was told to end", host_state="what serves was not touched")

    def watch_reader() -> None:
        while not request.answers.gone():
            time.sleep(READER_CHECK_S)
        if held.fileno() >= 0:
            os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    threading.Thread(target=watch_reader, name="reader", daemon=True).start()
    held.answer_in_thread(owner)
    try:
        yield
    finally:
        held.close()


def keep_agent(instance: Instance, zip_bytes: bytes) -> Path:
    """The agent's zip on disk, by its sha256: child programs are started from it."""
    path = instance.agents / f"{store.sha256(zip_bytes)}.zip"
    with state.naming_io_errors("keep the agent", "nothing was changed"):
        state.make_private(instance.agents)
        if not path.exists():
            state.write_private(path, zip_bytes)
        os.utime(path)
    return path


def _refuse_unfinished(instance: Instance) -> None:
    owed = history.unfinished(history.read_deploys(instance))
    if owed is not None:
        raise OpFailed(
            "unfinished",
            f"deploy {owed.id} on this instance never ended: it stopped in {owed.now.phase}",
            detail={"id": owed.id, "phase": owed.now.phase},
            host_state="nothing was changed by this request",
            next_command="specops recover",
        )


def _open_deploy(instance: Instance, plan: dict[str, Json], request: Request, agent_zip: Path) -> None:
    """Write the deploy's folder; its `opened` entry comes last and makes it a deploy."""
    folder = instance.deploy(plan["id"])
    with state.naming_io_errors("open the deploy", "nothing was changed"):
        state.make_private(folder.parent)
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            raise OpFailed(
                "run_already", f"deploy {plan['id']} was run already", next_command="specops history"
            ) from None
        try:
            state.write_private(folder / "plan.json", json.dumps(plan).encode())
            secrets = request.params.get("secrets") or {}
            if secrets:
                state.write_private(folder / "vault.json", json.dumps({"secrets": secrets}).encode())
            _write_blobs(folder / "blobs", request.params.get("blobs") or {})
            opened: dict[str, Json] = {"entry": "opened", "format": journal.FORMAT, "plan_id": plan["id"]}
            opened |= {"kind": plan["kind"], "by": plan.get("by"), "steps": len(plan["steps"])}
            opened |= {"agent": agent_zip.stem, "boot_id": state.boot_id()}
            notice.put(instance, plan["id"])
            Deploy(instance, plan["id"], agent_zip).record(opened)
        except BaseException:
            notice.drop(instance, plan["id"])
            shutil.rmtree(folder, ignore_errors=True)
            raise


def _write_blobs(folder: Path, blobs: dict[str, str]) -> None:
    folder.mkdir(mode=0o700)
    for digest, encoded in blobs.items():
        try:
            data = base64.b64decode(encoded, validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise OpFailed(
                "refused", f"blob {digest} is not base64: {error}", host_state="nothing was changed"
            ) from error
        if store.sha256(data) != digest:
            raise OpFailed(
                "refused", f"blob {digest} does not hold what its name says", host_state="nothing was changed"
            )
        state.write_private(folder / digest, data)


def _tell(instance: Instance, owner: dict[str, Json], reason: str) -> None:
    """The reason goes into a file that the agent polls; the signal only makes it look sooner."""
    data = json.dumps({"reason": reason, "at": time.time()}).encode()
    try:
        if owner.get("deploy"):
            folder = instance.deploy(str(owner["deploy"]))
            state.write_private(folder / "abort.json", data)
            if journal.replay_deploy(folder).closed:  # meanwhile: nobody will read it any more
                (folder / "abort.json").unlink(missing_ok=True)
    except FileNotFoundError:
        pass  # another user's state is elsewhere; root may signal it all the same
    except PermissionError as error:
        raise _not_ours(owner) from error
    _signal(owner, signal.SIGTERM)


def _signal(owner: dict[str, Json], number: int) -> None:
    pid, ticks = int(owner["pid"]), int(owner.get("start_ticks") or 0)
    if not procs.lives(pid, ticks):
        return
    try:
        os.kill(pid, number)
    except PermissionError as error:
        raise _not_ours(owner) from error
    except ProcessLookupError:
        return


def _not_ours(owner: dict[str, Json]) -> OpFailed:
    return OpFailed(
        "not_permitted",
        f"the deploy belongs to {owner.get('user')} (uid {owner.get('uid')}, pid {owner.get('pid')})",
        detail=owner,
        host_state="nothing was changed",
        next_command=f"ask {owner.get('user')}, or set `become` for this host in inventory.yaml",
    )
