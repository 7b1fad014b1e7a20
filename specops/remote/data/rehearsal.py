"""Runs in the server's own environment, from a copy of its package: imports changes, parses arguments.

Reads one JSON object on stdin, writes one JSON line for each stage to the descriptor it is told.
"""

import importlib
import importlib.machinery
import json
import os
import resource
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

Spec = dict[str, Any]
Tell = Callable[..., None]


def main() -> None:
    spec = json.loads(sys.stdin.buffer.read())
    channel = os.fdopen(spec["report_fd"], "w")
    os.set_inheritable(spec["report_fd"], False)
    state: Spec = {"stage": "start", "modules": {}}

    def tell(**fields: Any) -> None:
        state.update(fields)
        channel.write(json.dumps(state) + "\n")
        channel.flush()

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (spec["cpu_s"], spec["cpu_s"]))
    resource.setrlimit(resource.RLIMIT_AS, (spec["memory_bytes"], spec["memory_bytes"]))
    try:
        check_place(spec, tell)
        import_all(spec, tell)
        parse_arguments(spec, tell)
        tell(ok=True, stage="end")
    except BaseException as error:
        lines = traceback.format_exc().strip().splitlines()
        words = str(error) if isinstance(error, Wrong) else lines[-1]
        tell(ok=False, error=words, traceback=lines[-12:], hint=getattr(error, "hint", None))
    channel.close()
    os._exit(0)


class Wrong(Exception):
    hint: "str | None" = None


def check_place(spec: Spec, tell: Tell) -> None:
    """Without the copy in front, the server's folder and environment must lead to the install."""
    tell(stage="finding sglang")
    rest = [entry for entry in sys.path if os.path.realpath(entry or ".") != os.path.realpath(spec["folder"])]
    found = importlib.machinery.PathFinder.find_spec("sglang", rest)
    if found is None or not found.origin:
        return
    folder = os.path.dirname(os.path.realpath(found.origin))
    if folder != os.path.realpath(spec["install"]):
        raise Wrong(
            f"in the server's folder and environment `import sglang` finds {folder}, "
            f"not the install {spec['install']}"
        )


def require_copy(spec: Spec, module: ModuleType) -> str:
    path = getattr(module, "__file__", None) or ""
    if not os.path.realpath(path).startswith(os.path.realpath(spec["folder"]) + os.sep):
        raise Wrong(f"{module.__name__} was imported from {path}, not from the changed copy")
    return path


def import_all(spec: Spec, tell: Tell) -> None:
    tell(stage="import of sglang")
    require_copy(spec, importlib.import_module("sglang"))
    try:
        plugins: Any = importlib.import_module("sglang.srt.plugins")
    except ImportError:
        plugins = None
    if hasattr(plugins, "load_plugins"):
        plugins.load_plugins()
    modules = {}
    for name in spec["modules"]:
        tell(stage=f"import of {name}")
        path = require_copy(spec, importlib.import_module(name))
        modules[name] = os.path.relpath(path, spec["folder"])
    tell(modules=modules, version=str(getattr(sys.modules["sglang"], "__version__", "")))


def server_words(argv: list[str]) -> "list[str] | None":
    """The server's own arguments behind `-m sglang.launch_server` or `sglang serve`; None if neither."""
    for index, word in enumerate(argv):
        if word == "-m" and argv[index + 1 : index + 2] == ["sglang.launch_server"]:
            return argv[index + 2 :]
        if word == "serve" and index and os.path.basename(argv[index - 1]).startswith("sglang"):
            return argv[index + 1 :]
        if os.path.basename(word) == "launch_server.py":
            return argv[index + 1 :]
    return None


def parse_arguments(spec: Spec, tell: Tell) -> None:
    tell(stage="launch arguments")
    words = server_words(spec["argv"])
    if words is None:
        tell(arguments="not checked: the command is not sglang.launch_server")
        return
    import argparse
    import difflib

    from sglang.srt.server_args import ServerArgs

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise Wrong(message)

    # an abbreviation would be taken silently for another flag after the next release
    parser = Parser(prog="sglang.launch_server", allow_abbrev=False)
    ServerArgs.add_cli_args(parser)
    if "--config" in words:
        from sglang.srt.server_args_config_parser import ConfigArgumentMerger

        words = ConfigArgumentMerger(parser).merge_config_with_args(words)
    try:
        _, unknown = parser.parse_known_args(words)
    except Wrong as error:
        tell(next="correct that argument in the playbook's `server` section")
        raise Wrong(f"this release does not accept the launch arguments: {error}") from error
    unknown = [word for word in unknown if word.startswith("-")] or unknown
    if unknown:
        name = unknown[0].partition("=")[0]
        wrong = Wrong(f"this release has no argument {name}")
        near = difflib.get_close_matches(name, list(parser._option_string_actions), 1)
        wrong.hint = spec["hints"].get(name) or (f"did you mean {near[0]}?" if near else None)
        tell(next=f"remove {name} from the playbook's `server.args`, or take the name that this release uses")
        raise wrong
    tell(arguments=f"{len([word for word in words if word.startswith('--')])} accepted")


main()
