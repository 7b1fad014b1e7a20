"""Every command with its module and its line of help: enough for `specops --help`, and to load one module."""

from __future__ import annotations

ABOUT = (
    "Change a running SGLang server over SSH: patch it, restart it, prove both sides of the speculation "
    "gate, or put everything back."
)
COMMANDS = {
    "facts": ("hosts", "What is true on a host: install, server, GPUs, state."),
    "status": ("hosts", "The lock, what is in force, how the latest deploy stands."),
    "history": ("hosts", "Every deploy, rollback, smoke test and sweep of an instance, newest first."),
    "logs": ("hosts", "The server's log of a deploy, on stdout."),
    "plan": ("change", "What a deploy would do: `deploy --dry-run`."),
    "deploy": ("change", "Patch, restart, prove both sides; or put everything back."),
    "rollback": ("change", "Take back the deploy in force; start what served before it."),
    "attach": ("change", "Follow a deploy from its first event to its end."),
    "recover": ("change", "End a deploy that never ended, by its own journal."),
    "abort": ("change", "Stop the running deploy: it takes back what it did."),
    "clean": ("change", "Remove old logs and backups; what a rollback needs stays."),
    "smoke": ("prove", "Prove both sides of the threshold on a running server."),
    "sweep": (
        "measure",
        "Smoke first; then throughput and latency by level, of one server or of several arms.",
    ),
    "tune": ("measure", "Find the threshold: up to which batch speculation pays, and how sure that is."),
    "report": ("report", "One self-contained HTML page of a sweep: curves, crossover, doubts."),
    "compare": ("report", "What changed from A to B beyond noise, and what was different."),
    "lock": ("lock", "Who holds an instance."),
    "evidence": ("lock", "What a failed deploy left to look at."),
    "patch": ("patch", "Patches for SGLang releases."),
    "lab": ("lab", "A real SGLang host on this machine, without a GPU."),
}
GROUPS = {"lock": "app", "evidence": "evidence_app", "patch": "app", "lab": "app"}
"""Names that have commands of their own: the variable of their module that holds them."""


def modules_of(argv: list[str]) -> list[str]:
    """What to load for a command line: one module where the first word that can be a command is one."""
    first = next((word for word in argv if not word.startswith("-")), "")
    wanted = [COMMANDS[first][0]] if first in COMMANDS else [module for module, _ in COMMANDS.values()]
    return list(dict.fromkeys(wanted))


def overview() -> str:
    """`specops --help`, without loading any command or the library that reads command lines."""
    import textwrap

    width = max(map(len, COMMANDS))
    about = textwrap.fill(ABOUT, width=78, initial_indent="  ", subsequent_indent="  ")
    lines = [f"  {name:{width}}  {line}" for name, (_, line) in COMMANDS.items()]
    return "\n".join(
        (
            "Usage: specops [OPTIONS] COMMAND [ARGS]...",
            "",
            about,
            "",
            "Options:",
            "  --version   Say the version and end.",
            "  -h, --help  Show this message and exit.",
            "",
            "Commands:",
            *lines,
        )
    )
