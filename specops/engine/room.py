"""Preflight with numbers: each check has a name, a verdict and what it saw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from specops.engine.check import GIB, Check, gib
from specops.engine.runtime import check_runtime
from specops.errors import Refused

if TYPE_CHECKING:
    from specops.config.playbook import Playbook
    from specops.facts.gpus import Holder
    from specops.facts.host import HostFacts
    from specops.facts.models import Model

DISK_LEAST = 2 * GIB
"""Below the state folder: the rehearsal's copy of the package, backups, the capped log."""
SHM_LEAST = GIB
"""NCCL's segments of a tensor-parallel server; containers give 64 MiB unless told otherwise."""
FOREIGN = 0.05
"""Of a GPU's memory: more than this in other hands unbalances or starves a load."""
DP_STEP, DP_PORTS, GRPC_STEP, LAST_PORT = 233, 6, 10000, 65535
"""DP attention talks over TCP from port + 233 on (all releases); the gRPC mode's port is port + 10000."""
UNSIZED = ("load-format", "quantization", "cpu-offload-gb", "dp-size", "ep-size")
"""Flags with which the weights on disk are not the weights on a GPU."""


def check_room(facts: HostFacts, playbook: Playbook, host: str) -> tuple[Check, ...]:
    """Raises Refused with the first check that refuses; what only warns is in the plan."""
    checks = tuple(_all(facts, playbook))
    for check in checks:
        if check.verdict == "refuse":
            raise Refused(
                f"{host}: {check.name}: {check.saw}",
                host_state="nothing was changed",
                next_command=check.next_command,
            )
    return checks


def check_others(facts: HostFacts) -> tuple[Check, ...]:
    """Who else is concerned: deploys left half way, servers that run from the same install, lost ranks.

    Only warnings: any user of the host can write a note, and a server keeps what it has loaded.
    """
    users = tuple(
        Check(
            name="install",
            verdict="warn",
            saw=f"{line} runs from it too: it keeps the files that it has loaded until it starts again",
        )
        for line in facts.users
    )
    ranks = tuple(
        Check(name="ranks", verdict="warn", saw=f"{rank.line} has lost its launcher: it is stopped first")
        for rank in facts.ranks
    )
    return (
        users
        + ranks
        + tuple(
            Check(
                name="unfinished",
                verdict="warn",
                saw=f"{other.line}: files or the server may be between two states, and this plan takes them "
                f"as they are; {other.user} ends it with `specops recover`",
            )
            for other in facts.state.others
        )
    )


def _all(facts: HostFacts, playbook: Playbook) -> Iterator[Check]:
    target = facts.models.get(playbook.model.path)
    draft = facts.models.get(playbook.draft.path) if playbook.draft else None
    if target:
        yield _model("model", target)
        yield _tokenizer(target, playbook)
    if draft:
        yield _model("draft", draft)
    if target and draft and target.config and draft.config:
        yield from _pair(target.config, draft.config)
    weights = (target.bytes if target else 0) + (draft.bytes if draft else 0)
    if weights:
        yield _ram(facts, weights)
    yield from _logout(facts, playbook.server.scope)
    yield from _disks(facts)
    if playbook.server.tp > 1 and facts.room.shm:
        yield _shm(facts.room.shm.free)
    yield from _ports(facts)
    yield from check_runtime(facts, playbook)
    yield from map(_holder, facts.holders)
    if facts.gpus:
        yield from _gpus(facts, playbook, weights)
        yield _tools(facts.room.tools)


def _model(name: str, model: Model) -> Check:
    if model.of_hub and not model.complete:
        where = f"the hub's cache {model.cache}".rstrip()
        what = f"is not in {where}" if not model.exists else f"is not whole in {where} ({model.detail})"
        return Check(name=name, verdict="warn", saw=f"{model.path} {what}: SGLang downloads it at its start")
    return Check(name=name, verdict="ok", saw=f"{model.files} weight files, {gib(model.bytes)}, all there")


def _tokenizer(model: Model, playbook: Playbook) -> Check:
    if model.of_hub and not model.complete:
        return Check(name="tokenizer", verdict="ok", saw="comes with the model from the hub")
    elsewhere = playbook.server.args.get("tokenizer-path")
    if model.tokenizer or elsewhere or playbook.server.args.get("skip-tokenizer-init"):
        return Check(name="tokenizer", verdict="ok", saw=str(elsewhere or "beside the model"))
    return Check(
        name="tokenizer",
        verdict="refuse",
        saw=f"none in {model.path} (tokenizer.json, tokenizer.model, …)",
        next_command="copy it there, or --set server.args.tokenizer-path=…",
    )


def _pair(target: Mapping[str, Any], draft: Mapping[str, Any]) -> Iterator[Check]:
    """A draft of another width or vocabulary can be right: only its own word on its target counts."""
    kind = ", ".join(map(str, draft.get("architectures") or ())) or "no architecture named"
    eagle = any("eagle" in str(name).lower() for name in draft.get("architectures") or ())
    yield Check(
        name="draft architecture",
        verdict="ok" if eagle else "warn",
        saw=kind if eagle else f"{kind}: not known as an EAGLE draft",
    )
    made_for, width = draft.get("target_hidden_size"), target.get("hidden_size")
    same = made_for in (None, width)
    said = f"target {width}, draft {draft.get('hidden_size')}"
    yield Check(
        name="draft against target",
        verdict="ok" if same or width is None else "warn",
        saw=f"hidden size: {said}" + ("" if same else f", which says it was made for {made_for}"),
    )
    words, own = target.get("vocab_size"), draft.get("draft_vocab_size") or draft.get("vocab_size")
    if words and own:
        yield Check(name="draft vocabulary", verdict="ok", saw=f"{own} words of the target's {words}")


def _ram(facts: HostFacts, weights: int) -> Check:
    free, total = facts.platform.mem_available, facts.platform.mem_total
    enough = not total or weights <= total
    more = "" if enough else "; the page cache cannot hold them, so a second load is as slow as the first"
    return Check(
        name="memory",
        verdict="ok" if enough else "warn",
        saw=f"{gib(weights)} of weights, {gib(free)} of {gib(total)} available{more}",
    )


def _logout(facts: HostFacts, scope: str) -> Iterator[Check]:
    """Whether the server outlives the operator's session."""
    machine = facts.platform
    if scope != "none" and not machine.systemd:
        yield _refuse_scope("systemd does not run this machine", "--set server.scope=none")
    elif scope == "system" and machine.uid != 0:
        yield _refuse_scope(f"{machine.user} may not start a system scope", "--set server.scope=user")
    elif scope == "user" and not machine.linger:
        saw = f"the user's systemd of {machine.user} ends with its last session, and the server with it"
        yield _refuse_scope(saw, f"loginctl enable-linger {machine.user}")
    elif scope == "none" and machine.kills_at_logout:
        yield Check(
            name="logout",
            verdict="refuse",
            saw=f"KillUserProcesses ends what the sessions of {machine.user} leave running",
            next_command=f"loginctl enable-linger {machine.user}, then --set server.scope=user",
        )
    else:
        yield Check(name="logout", verdict="ok", saw="the server outlives it")


def _refuse_scope(saw: str, next_command: str) -> Check:
    return Check(name="scope", verdict="refuse", saw=saw, next_command=next_command)


def _disks(facts: HostFacts) -> Iterator[Check]:
    state = next(iter(facts.room.disks.items()), None)
    if state is None:
        return
    path, space = state
    if space.free >= DISK_LEAST:
        yield Check(name="disk", verdict="ok", saw=f"{gib(space.free)} free for {path}")
        return
    yield Check(
        name="disk",
        verdict="refuse",
        saw=f"{gib(space.free)} free for {path}; {gib(DISK_LEAST)} are needed",
        next_command="free space there, or specops clean, or another `state:` in the inventory",
    )


def _shm(free: int) -> Check:
    enough = free >= SHM_LEAST
    return Check(
        name="shared memory",
        verdict="ok" if enough else "warn",
        saw=f"{gib(free)} free" + ("" if enough else f"; NCCL may want {gib(SHM_LEAST)} for several ranks"),
    )


def _ports(facts: HostFacts) -> Iterator[Check]:
    mine = set(facts.server.members) if facts.server else set()
    for port, holder in facts.room.ports.items():
        if holder is None or (holder.pids and mine.issuperset(holder.pids)):
            what = "free" if holder is None else "held by the server that will be stopped"
            yield Check(name=f"port {port}", verdict="ok", saw=what)
        else:
            yield Check(
                name=f"port {port}",
                verdict="refuse",
                saw=f"the server would bind it, but it is held by {holder.line}",
                next_command="stop that process, or give another port in server.args",
            )


def _gpus(facts: HostFacts, playbook: Playbook, weights: int) -> Iterator[Check]:
    ranks = playbook.server.tp * int(str(playbook.server.args.get("pp-size") or 1))
    yield Check(
        name="gpus",
        verdict="ok" if ranks <= len(facts.gpus) else "refuse",
        saw=f"{len(facts.gpus)} there, {ranks} needed",
        next_command=f"--set server.tp={len(facts.gpus)}",
    )
    used = facts.gpus[: ranks if _first_ones(playbook, facts) else None]
    after = [gpu.mem_free + gpu.mem_held for gpu in used]
    tightest = min(range(len(used)), key=lambda index: after[index])
    gpu, free = used[tightest], after[tightest]
    foreign = gpu.mem_total - free
    busy = foreign > FOREIGN * gpu.mem_total
    yield Check(
        name="gpu memory",
        verdict="warn" if busy else "ok",
        saw=f"gpu {gpu.index}: {gib(free)} of {gib(gpu.mem_total)} free"
        + (f" once {gib(gpu.mem_held)} are given back" if gpu.mem_held else "")
        + (f"; {gib(foreign)} are in other hands" if busy else ""),
    )
    yield from _fraction(playbook, weights, ranks, free)


def _holder(other: Holder) -> Check:
    """Another process on the GPUs of the server. A lost rank would hold its memory for ever, but is only
    ended where it is certainly this server's."""
    held = f" holds {gib(other.bytes)} of its GPUs" if other.bytes else " has its GPUs open"
    return Check(
        name="gpu holder",
        verdict="refuse" if other.lost else "warn",
        saw=f"{other.line}{held} and is left alone: nothing shows that it is part of the server",
        next_command=f"end it if it is yours: kill {other.pid}",
    )


def _first_ones(playbook: Playbook, facts: HostFacts) -> bool:
    """Whether the ranks take the first GPUs: nothing picks others."""
    chosen = playbook.env.set.get("CUDA_VISIBLE_DEVICES") or playbook.server.args.get("base-gpu-id")
    return not chosen and not (facts.server and "CUDA_VISIBLE_DEVICES" in facts.server.env)


def _fraction(playbook: Playbook, weights: int, ranks: int, free: int) -> Iterator[Check]:
    """What the weights leave of mem_fraction_static for the KV cache."""
    if not weights or any(flag in playbook.server.args for flag in UNSIZED):
        return
    share = weights // ranks
    fraction = playbook.server.mem_fraction_static
    budget = int(free * (fraction if fraction is not None else 1.0))
    said = f"{gib(share)} of weights a rank, {gib(budget)} allowed"
    said += f" by mem_fraction_static {fraction}" if fraction is not None else " at most"
    if share < budget:
        yield Check(
            name="weights on gpu", verdict="ok", saw=f"{said}: {gib(budget - share)} for the KV cache"
        )
        return
    yield Check(
        name="weights on gpu",
        verdict="refuse",
        saw=f"{said}: nothing is left for the KV cache",
        next_command=f"--set server.tp={ranks * 2}, or --set server.mem_fraction_static=0.9",
    )


def _tools(tools: Mapping[str, str | None]) -> Check:
    missing = [name for name, path in tools.items() if path is None]
    return Check(
        name="compilers",
        verdict="warn" if missing else "ok",
        saw=f"not found: {', '.join(missing)}; needed only where kernels are compiled at start"
        if missing
        else ", ".join(f"{name} {path}" for name, path in tools.items()),
    )


def derived_ports(args: Mapping[str, Any], port: int) -> tuple[int, ...]:
    """Ports beside its own (`port`) that a launch binds: those that its flags name, and those that SGLang
    counts up from them. What it picks by itself is free."""
    found = []
    for flag in ("nccl-port", "grpc-port", "disaggregation-bootstrap-port"):
        if str(args.get(flag, "")).isdigit():
            found.append(int(args[flag]))
    named = str(args.get("dist-init-addr") or "").rpartition(":")[2]
    if named.isdigit():
        found.append(int(named))
    if args.get("enable-dp-attention"):
        first = int(named) if named.isdigit() else port + DP_STEP * (1 if port + DP_STEP <= LAST_PORT else -1)
        found += range(first, first + DP_PORTS)
    if (args.get("smg-grpc-mode") or args.get("grpc-mode")) and "grpc-port" not in args:
        found.append(port + GRPC_STEP)
    return tuple(dict.fromkeys(each for each in found if 0 < each <= LAST_PORT))
