"""The command line: the table of commands, and the only place where the program ends."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from specops import __version__
from specops.cli import change, hosts, lab, lock, patch, prove, report

INTERRUPTED = 130


def make_app() -> typer.Typer:
    app = typer.Typer(
        name="specops",
        help="Change a running SGLang server over SSH: patch it, restart it, prove both sides of the "
        "speculation gate, or put everything back.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_version)
    for module in (hosts, change, prove, report):
        module.register(app)
    app.add_typer(lock.app, name="lock")
    app.add_typer(lock.evidence_app, name="evidence")
    app.add_typer(patch.app, name="patch")
    app.add_typer(lab.app, name="lab")
    return app


def _show_version(asked: bool) -> None:
    if asked:
        from specops.ui.terminal import write_result

        write_result(f"specops {__version__}")
        raise typer.Exit(0)


def _version(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Say the version and end."),
    ] = False,
) -> None: ...


def main() -> None:
    """The console script: every way out goes through here, with the blueprint's exit codes."""
    sys.exit(run(sys.argv[1:]))


def run(argv: list[str]) -> int:
    """Run one command line and return its exit code; nothing is raised."""
    from specops.errors import SpecopsError

    try:
        return code_of(make_app()(args=argv, prog_name="specops", standalone_mode=False))
    except SpecopsError as error:
        _tell(error, argv)
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        _note("interrupted; nothing was changed by this command", argv)
        return INTERRUPTED
    except typer.Exit as ended:
        return int(ended.exit_code)
    except BrokenPipeError:
        # Whoever read our output has left; the host goes its own way.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if _is_usage(error):
            return _tell_usage(error, argv)
        return _tell_internal(error, argv)


def code_of(value: Any) -> int:
    """A command returns its exit code, an outcome, or nothing."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    from specops.engine.outcome import exit_code

    return exit_code(value)


def _tell(error: Any, argv: list[str]) -> None:
    from specops.ui.output import make_output

    error.next_command = with_host(error.next_command, argv)
    make_output(as_json="--json" in argv).error(error)


def with_host(command: str, argv: list[str]) -> str:
    """A command that the host proposed, for the host that was asked: it does not know its name here."""
    if not command.startswith("specops ") or "--host" in command or ";" in command:
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
        from specops.ui.terminal import write_result

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
