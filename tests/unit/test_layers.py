"""The boundaries that ARCHITECTURE.md draws, read from the source: imports, sizes, and who may print."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "specops"
TIERS = (
    {"cli"},
    {"ui"},
    {"engine", "sweep", "lab"},
    {"steps"},
    {"facts", "config"},
    {"connect"},
    {"errors"},
)
"""A room imports itself, `specops` (its version) and the tiers below its own."""

NEIGHBOURS = {("engine", "sweep")}
"""`deploy --sweep` is one plan of the engine; nothing of the sweep knows the engine."""

LONGEST_FILE = 400
LONGEST_FUNCTION = 50


def tier_of(room: str) -> int:
    return next(index for index, rooms in enumerate(TIERS) if room in rooms)


def sources() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if not is_stand_in(path))


def is_stand_in(path: Path) -> bool:
    return any(part.startswith("standin") for part in path.relative_to(PACKAGE).parts[:-1])


def imported_modules(tree: ast.Module, package: str) -> Iterator[tuple[int, str]]:
    """(line, absolute dotted name) of every import, however deep in a function it hides."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            origin = ".".join(filter(None, (base, node.module or "")))
            for alias in node.names:
                # `from specops import ui` names a room only in its last word.
                yield node.lineno, f"{origin}.{alias.name}"
        elif (
            isinstance(node, ast.Call)
            and getattr(node.func, "id", getattr(node.func, "attr", "")) in {"import_module", "__import__"}
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield node.lineno, str(node.args[0].value)


def room_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return "cli" if parts == ("__main__",) else parts[0]


def wrong_imports(path: Path, source: str) -> list[str]:
    """One line for each import of `path` that points the wrong way."""
    room = room_of(path)
    package = ".".join(("specops", *path.relative_to(PACKAGE).parts[:-1]))
    found = []
    for line, name in imported_modules(ast.parse(source), package):
        words = name.split(".")
        if words[0] != "specops":
            continue
        target = words[1] if len(words) > 1 else ""
        if target in {"", "__version__"} or target == room:
            continue
        if room == "remote" or target == "remote":
            found.append(f"{path.name}:{line}: {name} crosses the boundary of the agent")
        elif (room, target) not in NEIGHBOURS and tier_of(target) <= tier_of(room):
            found.append(f"{path.name}:{line}: {room} must not import {name}")
    return found


@pytest.mark.parametrize(
    ("room", "source", "wrong"),
    [
        ("steps", "from specops.engine import plan", True),
        ("steps", "def f():\n    from specops.ui.human import show", True),
        ("connect", "import specops.config.inventory", True),
        ("facts", "from specops import config", True),
        ("engine", "import importlib\nimportlib.import_module('specops.cli.main')", True),
        ("sweep", "from specops.engine.plan import Plan", True),
        ("remote", "from specops.errors import Locked", True),
        ("connect", "from specops.remote import context", True),
        ("connect", "from ..remote.context import Context", True),
        ("remote", "from .context import Context", False),
        ("engine", "from specops.sweep import levels", False),
        ("cli", "from specops.connect.opening import open_connector", False),
        ("ui", "from specops import __version__", False),
    ],
)
def test_the_rule_itself_sees_what_it_should(room: str, source: str, wrong: bool) -> None:
    assert bool(wrong_imports(PACKAGE / room / "invented.py", source)) == wrong


def test_imports_point_down_only() -> None:
    found = [line for path in sources() for line in wrong_imports(path, path.read_text())]
    assert found == []


def test_the_agent_needs_nothing_but_the_standard_library() -> None:
    # Children of the agent run in SGLang's own environment, which has these.
    there_with_sglang = {"aiohttp", "requests", "sglang", "sgl_kernel", "torch"}
    found = [
        f"{path.name}:{line}: {name}"
        for path in sources()
        if room_of(path) == "remote"
        for line, name in imported_modules(ast.parse(path.read_text()), "specops.remote")
        if (top := name.split(".")[0]) not in sys.stdlib_module_names | there_with_sglang | {"specops"}
        and not top.startswith("_")
    ]
    assert found == []


def test_the_agent_is_written_in_python_3_10() -> None:
    def parses(text: str) -> bool:
        try:
            ast.parse(text, feature_version=(3, 10))
        except SyntaxError:
            return False
        return True

    assert not parses("try: pass\nexcept* OSError: pass")
    assert [
        path.name for path in sources() if room_of(path) == "remote" and not parses(path.read_text())
    ] == []


def test_files_and_functions_stay_small() -> None:
    found = []
    for path in sources():
        text = path.read_text()
        if (lines := len(text.splitlines())) > LONGEST_FILE:
            found.append(f"{path.relative_to(PACKAGE)}: {lines} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    found.append(f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.name} has {length} lines")
    assert found == []


def test_only_the_ui_prints() -> None:
    """The agent answers on stdout by its protocol; a child program and the lab's own scripts too."""
    found = []
    for path in sources():
        if room_of(path) in {"ui", "remote"}:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            if name in {"print", "sys.stdout.write", "sys.stderr.write", "typer.echo", "typer.secho"}:
                found.append(f"{path.relative_to(PACKAGE)}:{node.lineno}: {name}")
    assert found == []


def test_only_the_main_of_the_command_line_exits() -> None:
    found = []
    for path in sources():
        if room_of(path) == "remote" or path.relative_to(PACKAGE).parts == ("cli", "main.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            if name in {"sys.exit", "exit", "quit", "os._exit", "SystemExit", "typer.Exit"}:
                found.append(f"{path.relative_to(PACKAGE)}:{node.lineno}: {name}")
    assert found == []
