"""The command line: the table of commands, and the only place where the program ends."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from specops.cli.commands import ABOUT, COMMANDS, GROUPS, modules_of, overview

if TYPE_CHECKING:
    import typer

INTERRUPTED = 130
HELP = ["-h", "--help"]
LATER = ("sweep", "tune", "lab")
"""Commands that may have done something by the time a file turns out to be wrong."""


def make_app(modules: list[str]) -> typer.Typer:
    """The commands of these modules of ours, in the order of the table."""
    import typer

    app = typer.Typer(
        name="specops",
        help=ABOUT,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": HELP},
    )
    app.callback()(_root())
    for name in modules:
        module = import_module(f"specops.cli.{name}")
        if hasattr(module, "register"):
            module.register(app)
        for group, variable in GROUPS.items():
            if COMMANDS[group][0] == name:
                app.add_typer(getattr(module, variable), name=group)
    return app


def _root() -> Any:
    from typing import Annotated

    import typer

    def show_version(asked: bool) -> None:
        if asked:
            from specops import __version__
            from specops.ui.plain import write_result

            write_result(f"specops {__version__}")
            raise typer.Exit(0)

    option = typer.Option("--version", callback=show_version, is_eager=True, help="Say the version and end.")

    def version(version=False) -> None: ...  # type: ignore[no-untyped-def]

    # Not by the signature's text: what typer is cannot be seen from where it would be read.
    version.__annotations__["version"] = Annotated[bool, option]
    return version


def main() -> None:
    """The console script: every way out goes through here, with the blueprint's exit codes."""
    sys.exit(run(sys.argv[1:]))


def run(argv: list[str]) -> int:
    """Run one command line and return its exit code; nothing is raised."""
    from specops.errors import SpecopsError, UsageError

    try:
        if not argv or (len(argv) == 1 and argv[0] in HELP):
            from specops.ui.plain import write_result

            write_result(overview())
            return 0 if argv else UsageError.exit_code
        return _run_command(argv)
    except SpecopsError as error:
        _tell(error, argv)
        return error.exit_code
    except KeyboardInterrupt:
        _note("interrupted; nothing was changed by this command", argv)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has left; the host goes its own way.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if _is_usage(error):
            return _tell_usage(error, argv)
        return _tell_internal(error, argv)


def _run_command(argv: list[str]) -> int:
    from specops.cli import early

    early.begin(argv)
    import typer

    try:
        app = make_app(modules_of(argv))
        return code_of(app(args=argv, prog_name="specops", standalone_mode=False))
    except typer.Abort:
        raise KeyboardInterrupt from None
    except typer.Exit as ended:
        return int(ended.exit_code)
    finally:
        early.end()


def code_of(value: Any) -> int:
    """A command returns its exit code, an outcome, or nothing."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    from specops.engine.outcome import exit_code

    return exit_code(value)


def _tell(error: Any, argv: list[str]) -> None:
    from specops.errors import ConfigError, UsageError
    from specops.ui.output import make_output

    if isinstance(error, ConfigError):
        after_config(error, argv)
    elif isinstance(error, UsageError) and not error.next_command and argv[:1] and argv[0] in COMMANDS:
        error.next_command = f"specops {argv[0]} --help"
    error.next_command = with_host(error.next_command, argv)
    make_output(as_json="--json" in argv).error(error)


def after_config(error: Any, argv: list[str]) -> None:
    """A file of ours is read before anything is done; but a sweep reads one for each of its arms."""
    word = argv[0] if argv else "specops"
    place = error.message.partition(": ")[0]
    if not error.host_state and word in COMMANDS and word not in LATER and "--sweep" not in argv:
        error.host_state = "nothing was changed"
    if not error.next_command:
        what = place if place.rpartition(":")[2].isdigit() else "it"
        error.next_command = f"correct {what}, then the same `specops {word}` again"


def with_host(command: str, argv: list[str]) -> str:
    """A command that the host proposed, for the host that was asked: it does not know its name here."""
    if not command.startswith("specops ") or any(word in command for word in ("--host", "--help", ";")):
        return command
    for word, value in zip(argv, [*argv[1:], ""], strict=True):
        if word == "--host" and value:
            return f"{command} --host {value}"
        if word.startswith("--host="):
            return f"{command} {word}"
    return command


def _note(message: str, argv: list[str]) -> None:
    from specops.ui.output import make_output

    make_output(as_json="--json" in argv).note(message)


def _is_usage(error: Exception) -> bool:
    """typer brings its own copy of click or uses an installed one, by version; the name is the same."""
    return any(kind.__name__ == "ClickException" for kind in type(error).__mro__)


def _tell_usage(error: Any, argv: list[str]) -> int:
    from specops.errors import UsageError

    if type(error).__name__ == "NoArgsIsHelpError":
        from specops.ui.plain import write_result

        write_result(error.format_message())
        return UsageError.exit_code
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "specops"
    _tell(UsageError(error.format_message(), next_command=f"{path} --help"), argv)
    return UsageError.exit_code


def _tell_internal(error: Exception, argv: list[str]) -> int:
    """One line and a file, never a traceback on the terminal; SPECOPS_DEBUG=1 shows it."""
    import traceback

    from specops.errors import SpecopsError
    from specops.ui.failure import keep_traceback

    text = "".join(traceback.format_exception(error))
    place = keep_traceback(text, argv, show=bool(os.environ.get("SPECOPS_DEBUG")))
    told = SpecopsError(
        f"internal error: {type(error).__name__}: {error}",
        host_state="unknown from here; `specops status` reads it",
        next_command=f"the traceback is in {place}; please report it",
    )
    _tell(told, argv)
    return SpecopsError.exit_code
