"""Which processes are one server: its launcher, what descends from it, and what left its tree."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from . import procs
from .procs import Process

Processes = dict[int, Process]


def find_option(argv: Sequence[str], *names: str) -> str | None:
    """Value of `--name value` or `--name=value`; the last one wins, as argparse has it."""
    value = None
    for index, word in enumerate(argv):
        name, equals, rest = word.partition("=")
        if name in names:
            if equals:
                value = rest
            elif index + 1 < len(argv):
                value = argv[index + 1]
    return value


def is_sglang(argv: Sequence[str]) -> bool:
    """A server's launcher or one of its workers, by its own command line.

    Where the interpreter lies says nothing (an environment may be called sglang, and our own programs run in
    it too), nor does a folder that is named later, nor the text of a program given by -c.
    """
    if any(word.startswith("sglang::") for word in argv[:1]):
        return True
    program = os.path.basename(argv[0]) if argv else ""
    interpreted = program.startswith(("python", "pypy")) or program == "sglang"
    if program == "sglang":
        return True
    told = (word for word in argv[1:8] if "\n" not in word and (word.endswith(".py") or word[:1] != "/"))
    script = next(
        (word for word in argv[1:] if not word.startswith("-")), ""
    )  # python /venv/bin/sglang serve
    return interpreted and (os.path.basename(script) == "sglang" or any("sglang" in word for word in told))


def find_launcher(processes: Processes, pid: int) -> int:
    """The topmost SGLang process at or above `pid`; `pid` itself when nothing above it is one."""
    found = pid
    seen = {pid}
    above = processes[pid].ppid if pid in processes else 0
    while above > 1 and above in processes and above not in seen:
        seen.add(above)
        argv = procs.read_argv(above)
        same_program = procs.read_link(above, "exe") == procs.read_link(pid, "exe")
        if is_sglang(argv) and (same_program or argv[0].startswith("sglang::")):
            found = above
        elif not (argv[1:2] == ["-c"] and same_program):
            break  # multiprocessing's own helpers sit between a launcher and its workers at times
        above = processes[above].ppid
    return found


def find_members(
    processes: Processes,
    *,
    pid: int | None = None,
    start_ticks: int | None = None,
    cookie: str | None = None,
    known: Iterable[tuple[int, int]] = (),
) -> set[int]:
    """Living processes of a server.

    `pid` counts only with its start ticks. `cookie` finds what carries it, and, for a launcher of ours,
    what shares its session: a worker that renamed itself may have lost its environment. Of the session that
    somebody else's launcher leads, what has a GPU open. `known` are (pid, start ticks) seen as members
    before.
    """
    roots: set[int] = set()
    launcher = processes.get(pid) if pid else None
    if launcher is not None and launcher.start_ticks == start_ticks and launcher.living:
        roots.add(launcher.pid)
    session = _session(processes, pid, start_ticks)
    if cookie:
        roots |= procs.carriers(processes, cookie) | session
    else:
        roots |= {seen for seen in session if procs.devices_of(seen)}
    for seen, ticks in known:
        process = processes.get(seen)
        if process is not None and process.start_ticks == ticks and process.living:
            roots.add(seen)
    found = procs.descendants(processes, roots)
    return {member for member in found if processes[member].living} - {os.getpid()}


def _session(processes: Processes, pid: int | None, start_ticks: int | None) -> set[int]:
    """What is left of the session that our launcher leads or led. The kernel gives its number to no new
    process while a member lives; a later leader of the same number has other start ticks."""
    if not pid or start_ticks is None:
        return set()
    leader = processes.get(pid)
    if leader is not None and leader.start_ticks != start_ticks:
        return set()
    return {p.pid for p in processes.values() if p.sid == pid and p.start_ticks >= start_ticks}


def describe_process(pid: int) -> str:
    """`pid 12 of root: python -m …`, for messages; secrets redacted."""
    from . import redact, state

    process = procs.read_process(pid)
    words = " ".join(redact.redact_argv(procs.read_argv(pid)))[:120]
    owner = state.user_name(process.uid) if process else "?"
    return f"pid {pid} of {owner}: {words or (process.comm if process else '(gone)')}"


def describe_holder(processes: Processes, port: int) -> str:
    """Who listens on a port, in words. Sockets of other users may have no visible process."""
    from . import state

    holders = procs.port_holders(processes, port)
    if holders:
        return "; ".join(describe_process(pid) for pid in sorted(holders)[:3])
    listeners = procs.read_listeners(port)
    if listeners:
        return f"a process of {state.user_name(listeners[0].uid)} that we may not look into"
    return "a socket without a listener (its last connections may still be closing)"
