"""Preflight: what makes a deploy impossible, seen from the facts before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from specops.engine.words import since
from specops.errors import Locked, Refused, Unfinished
from specops.steps.patch_launch import find_refusal, read_flags

if TYPE_CHECKING:
    from specops.config.patch import Patch
    from specops.config.playbook import Playbook
    from specops.engine.changes import Changes
    from specops.facts.host import HostFacts
    from specops.facts.install import Install
    from specops.facts.state import Current
    from specops.steps.gate import Gate

UNCHANGED = "nothing was changed"


def require_free(facts: HostFacts, host: str) -> None:
    """Raises Locked or Unfinished: somebody else is, or was, in the middle of a change."""
    lock = facts.state.lock
    if lock:
        raise Locked(
            f"{host}: {lock.get('user', '?')}@{lock.get('host', '?')} holds this instance since "
            f"{since(lock.get('since'))}: deploy {lock.get('deploy', '?')}, phase {lock.get('phase', '?')}",
            host_state="that deploy goes on; this one changed nothing",
            next_command=f"specops attach --host {host}",
        )
    unfinished = facts.state.unfinished
    if unfinished:
        raise Unfinished(
            f"{host}: deploy {unfinished.get('id')} never ended (last phase: {unfinished.get('phase', '?')})",
            host_state="the host may be between two states; nobody is working on it",
            next_command=f"specops recover --host {host}",
        )


def require_install(facts: HostFacts, host: str, python: str) -> Install:
    if facts.install is None:
        raise Refused(
            f"{host}: {python} has no SGLang",
            host_state=UNCHANGED,
            next_command="set `python:` of the instance in the inventory to the interpreter that runs "
            f"SGLang, then: specops facts --host {host}",
        )
    return facts.install


def require_server(facts: HostFacts, host: str) -> None:
    """The old server can be stopped and started again, or the port is free."""
    server = facts.server
    if server is None:
        if not facts.port.free:
            raise Refused(
                f"{host}: the port is taken by a process that is no SGLang server: {facts.port.holder}",
                host_state=UNCHANGED,
                next_command="stop that process, or choose another `port:` for the instance",
            )
        return
    if facts.platform.container:
        raise Refused(
            f"{host}: this is inside a container ({facts.platform.container}); its server lives and dies "
            "with the container's own command, so it cannot be restored here",
            host_state=UNCHANGED,
            next_command="run specops against the machine that starts the container",
        )
    if server.supervisor and not server.supervisor.drivable:
        boss = server.supervisor
        raise Refused(
            f"{host}: the server (pid {server.pid}) belongs to {boss.kind} {boss.name}".rstrip()
            + f" (seen from {boss.how}), which would start it again behind our back",
            host_state=UNCHANGED,
            next_command="stop it through its supervisor, start it by hand, then deploy again",
        )
    if facts.platform.uid not in (0, server.uid):
        raise Refused(
            f"{host}: the server (pid {server.pid}) runs as uid {server.uid}, "
            f"which {facts.platform.user} may not stop",
            host_state=UNCHANGED,
            next_command="set `become:` of the host in the inventory to that user",
        )


def require_restorable(facts: HostFacts, accepted: bool, host: str) -> None:
    """What a deploy that fails would have to start again can be."""
    server = facts.server
    if server and server.no_restore and not accepted:
        raise Refused(
            f"{host}: {server.no_restore}",
            host_state=UNCHANGED,
            next_command="mend that; or --accept-no-restore: should the deploy fail, its files are put back "
            "and nothing serves",
        )


def require_models(facts: HostFacts, host: str) -> None:
    for model in facts.models.values():
        if (model.of_hub and not model.offline) or (model.exists and model.complete):
            continue
        what = "is not there" if not model.exists else f"is incomplete: {model.detail}"
        if model.offline:
            raise Refused(
                f"{host}: model {model.path} {what} (the hub's cache is {model.cache}), and the server "
                "may not fetch it: its environment has HF_HUB_OFFLINE",
                host_state=UNCHANGED,
                next_command="fetch it there, give its cache in env.set.HF_HOME, "
                "or --set env.set.HF_HUB_OFFLINE=0",
            )
        raise Refused(
            f"{host}: model {model.path} {what}",
            host_state=UNCHANGED,
            next_command="correct `model.path` or `draft.path` in the playbook (or --set model.path=…)",
        )


def require_threshold(playbook: Playbook) -> None:
    """The gate must be able to close: more requests than T must be admitted."""
    admits = playbook.server.max_running_requests
    if admits is not None and playbook.gate.threshold > admits:
        raise Refused(
            f"threshold {playbook.gate.threshold} is above what the server admits "
            f"(server.max_running_requests {admits}): the gate could never close",
            host_state=UNCHANGED,
            next_command=f"--threshold {admits - 1} or less, or "
            f"--set server.max_running_requests={playbook.gate.threshold + 5}",
        )


def require_one_gate(patches: Sequence[Patch], gate: Gate) -> None:
    """A patch that brings a gate is the gate: beside another one, or none, nobody would know which closed."""
    for patch in patches:
        if patch.gate and patch.id != gate.patch:
            raise Refused(
                f"`patches:` asks for {patch.id}, which brings a gate, "
                f"but the gate is {gate.kind}: {gate.why}",
                host_state=UNCHANGED,
                next_command=f"leave {patch.id} out of `patches:`, or give --gate {patch.gate}",
            )


def require_patches_fit(
    patches: Sequence[Patch], argv: Sequence[str], facts: HostFacts, playbook: Playbook
) -> None:
    """No patch is asked to work with what it refuses, nor is a feature of the old server lost unsaid."""
    found = find_refusal(patches, argv)
    if found:
        patch, refusal = found
        raise Refused(
            f"patch {patch.id} does not work with --{refusal.flag}, "
            f"which the playbook asks for: {refusal.why}",
            host_state=UNCHANGED,
            next_command=f"take {refusal.flag} out of server.args, or give --gate none",
        )
    old = facts.server.argv if facts.server else ()
    found = find_refusal(patches, old)
    if facts.server and found and read_flags(old)[found[1].flag].lower() != "false":
        patch, refusal = found
        if playbook.server.args.get(refusal.flag) is not False:
            raise Refused(
                f"the server that runs now (pid {facts.server.pid}) has --{refusal.flag}, "
                f"and patch {patch.id} does not work with it: {refusal.why}",
                host_state=UNCHANGED,
                next_command=f"--gate none keeps it; to give it up: --set server.args.{refusal.flag}=false",
            )


def require_proven(unproven: Sequence[Patch], accepted: bool, host: str) -> None:
    if unproven and not accepted:
        raise Refused(
            f"{host}: patch {unproven[0].id} is unproven here: no step of it was ever run on this host",
            host_state=UNCHANGED,
            next_command="--accept-unproven deploys it, kept only if S0 to S7 all pass",
        )


def require_patched(install: Install, current: Current | None, known: Mapping[str, Patch], host: str) -> None:
    """There is a patch to drop, and the bytes from before it are at hand."""
    if current and (current.summary.get("copied") or _in_install(current, install)):
        return
    content = [(p, p.releases[install.version]) for p in known.values() if install.version in p.releases]
    for patch, release in content:
        for file in release.files:
            if file.after_sha256 and install.files.get(file.path) == file.after_sha256:
                raise Refused(
                    f"{host}: {file.path} holds patch {patch.id}, but no deploy on record put it there, "
                    "so the bytes from before are not in the host's store",
                    host_state=UNCHANGED,
                    next_command=f"reinstall SGLang {install.version} on {host}",
                )
    raise Refused(
        f"{host}: no patch is in this SGLang {install.version}: there is nothing to drop",
        host_state=UNCHANGED,
        next_command=f"specops status --host {host}",
    )


def require_activation(changes: Changes, install: Install, facts: HostFacts, host: str) -> None:
    """The install can be written where it is to change; a copy can be loaded by the server and starts from
    the install's own bytes."""
    in_place = [change for change in changes.files if change.path.startswith(install.root + "/")]
    if in_place and not install.writable:
        raise Refused(
            f"{host}: {install.root} cannot be written by {facts.platform.user}, and {len(in_place)} of its "
            "files are to change",
            host_state=UNCHANGED,
            next_command="--set activation=copy launches from a copy and changes no file of the install",
        )
    if not changes.copied:
        return
    current, server = facts.state.current, facts.server
    if current and _in_install(current, install):
        raise Refused(
            f"{host}: deploy {current.id} has changed this install in place; a copy starts from its bytes",
            host_state=UNCHANGED,
            next_command=f"specops patch drop --host {host}, then deploy with activation=copy",
        )
    if server and server.uid != facts.platform.uid:
        raise Refused(
            f"{host}: the server runs as uid {server.uid}, which cannot read a copy that belongs to "
            f"{facts.platform.user}",
            host_state=UNCHANGED,
            next_command="reach the host as that server's user, or leave `activation: in_place`",
        )


def _in_install(current: Current, install: Install) -> bool:
    return any(file.path.startswith(install.root + "/") for file in current.installed)
