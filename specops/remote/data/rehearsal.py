"""Runs in the server's own environment, from a copy of its package: imports changes, parses arguments.

Reads one JSON object on stdin, writes one JSON line for each stage to the descriptor it is told.
"""

import glob
import importlib
import importlib.machinery
import importlib.util
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
        check_torch(spec, tell)
        import_all(spec, tell)
        parse_arguments(spec, tell)
        check_kernel(spec, tell)
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


def check_torch(spec: Spec, tell: Tell) -> None:
    """torch as this environment finds it, against the driver as its own libcuda has it. `spec["driver"]`:
    what nvidia-smi told; null where the server uses no GPU."""
    tell(stage="import of torch")
    if importlib.util.find_spec("torch") is None:
        return  # the import of sglang will say more
    torch: Any = importlib.import_module("torch")
    cuda, driver = torch.version.cuda, spec.get("driver")
    built = f"torch {torch.__version__}, " + (f"built for CUDA {cuda}" if cuda else "CPU build")
    runtime = {"torch": str(torch.__version__), "cuda": cuda}
    tell(runtime=runtime)
    if not driver or getattr(torch.version, "hip", None):
        return
    most = driver_cuda() or driver.get("cuda")
    tell(runtime={**runtime, "driver": driver["version"], "driver_cuda": most})
    if cuda is None:
        tell(stage="driver and torch", next="install the CUDA build of torch, or give the server device=cpu")
        raise Wrong(f"{built}: it cannot use this host's GPUs (driver {driver['version']})")
    if most and int(cuda.partition(".")[0]) > int(most.partition(".")[0]):
        major = cuda.partition(".")[0]
        tell(
            stage="driver and torch",
            next=f"install a driver for CUDA {major}, or the torch and sglang-kernel built for CUDA "
            f"{most.partition('.')[0]}",
        )
        raise Wrong(f"{built}: driver {driver['version']} runs CUDA {most} at most")


def driver_cuda() -> "str | None":
    """The highest CUDA of the libcuda that a server would load here. Makes no context."""
    import ctypes

    number = ctypes.c_int()
    try:
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number)) != 0:
            return None
    except (OSError, AttributeError):
        return None
    return f"{number.value // 1000}.{number.value % 1000 // 10}" if number.value else None


def check_kernel(spec: Spec, tell: Tell) -> None:
    """The compiled kernels for this generation of GPU can be loaded. Last, for a library that was loaded
    twice under two names ends the process."""
    driver = spec.get("driver")
    torch: Any = sys.modules.get("torch")
    if not driver or torch is None or torch.version.cuda is None:
        return
    tell(stage="the kernel wheel", next="pip install --force-reinstall the sglang-kernel of this release")
    found = importlib.util.find_spec("sgl_kernel")
    if found is None or not found.origin:
        raise Wrong("sgl_kernel is not installed beside this SGLang")
    folder = os.path.dirname(found.origin)
    generation = "sm90" if driver.get("capability") == "9.0" else "sm100"
    names = sorted(
        glob.glob(f"{folder}/{generation}/common_ops.*so") or glob.glob(f"{folder}/common_ops.*so")
    )
    if not names or not os.path.getsize(names[0]):
        raise Wrong(f"{folder} has no library for this GPU ({generation}/common_ops)")
    if "sgl_kernel" not in sys.modules:
        load_library(names[0])
    tell(kernel=os.path.relpath(names[0], folder), next=None)


def load_library(path: str) -> None:
    import ctypes

    try:
        ctypes.CDLL(path)
    except OSError as error:
        try:
            importlib.import_module("sgl_kernel")  # it looks for CUDA's runtime itself, in more places
        except ImportError:
            raise Wrong(f"{os.path.basename(os.path.dirname(path))}/common_ops: {error}") from error


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
