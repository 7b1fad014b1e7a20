"""The agent as bytes: `specops/remote` in a zip, and the one line of Python that starts it on a host."""

from __future__ import annotations

import hashlib
import shlex
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import zipfile

REMOTE = Path(__file__).resolve().parent.parent / "remote"
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The oldest time a zip can hold; a fixed one makes equal files equal bytes."""

ENTRY = "import sys\nfrom agent.main import child\nraise SystemExit(child(sys.argv[1:]))\n"
"""Root `__main__.py`: `python -B agent.zip child-smoke` starts a child program of the agent."""

BOOTSTRAP = ";".join(
    (
        "import json,os,sys",
        # Also read by a Python 2 or 3.5, which must say what it is and not die of what it does not know.
        'i=getattr(sys.stdin,"buffer",sys.stdin)',
        "h=json.loads(i.readline().decode())",
        'm="This is Python "+sys.version.split()[0]+", the agent needs 3.10 or newer"',
        'e={"code":"old_python","message":m,"host_state":"nothing was changed","next_command":'
        '"set `python` of this host in inventory.yaml to a Python 3.10 or newer"}',
        'a={"event":"result","ok":False,"error":e}',
        r's="\x1e"+h["nonce"]+" "+json.dumps(a)+"\n"',
        "sys.version_info<(3,10) and sys.exit(sys.stdout.write(s) and 0)",
        'z=i.read(h["zip"])',
        'r=json.loads(i.read(h["request"]))',
        'n=h["nonce"]',
        r'sys.stdout.write("\x1e"+n+" "+json.dumps({"event":"received"})+"\n")',
        "sys.stdout.flush()",
        "import zipimport as q",
        'q.zipimporter.get_filename=lambda s,m:s.archive+"/"+s.prefix+m.rpartition(".")[2]'
        '+("/__init__.py" if s.is_package(m) else ".py")',
        'f=os.memfd_create("agent")',
        'w=open(f,"wb",closefd=False)',
        "w.write(z)",
        "w.close()",
        'sys.path.insert(0,"/proc/self/fd/%d"%f)',
        "from agent.main import main",
        "main(r,n,z)",
    )
)
"""One line without quotes of a shell's own, so that every login shell passes it on unchanged.

`received` tells the controller that the whole request arrived: without it, nothing was changed.

`get_filename` is replaced because zipimport's own compiles a module to tell its name, and then once more to
load it: half of an agent's start."""


def agent_argv(python: str, *, become: str | None = None) -> list[str]:
    """The only command that is ever run on a host; everything else travels on stdin."""
    prefix = [] if become is None else ["sudo", "-n", "-H", "-u", become, "--"]
    return [*prefix, python, "-I", "-S", "-c", BOOTSTRAP]


def shell_line(argv: list[str]) -> str:
    """`argv` for the login shell of a host, quoted item by item; `~/` stays for that shell to expand."""
    return " ".join(
        "~/" + shlex.quote(item[2:]) if item.startswith("~/") else shlex.quote(item) for item in argv
    )


def build_zip(folder: Path) -> bytes:
    """Every source and data file of `folder` under `agent/`, byte for byte the same wherever it is built."""
    import io
    import zipfile  # takes longer than the rest of this module, and a connection waits for that

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "__main__.py", ENTRY.encode())
        for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).as_posix()):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
                _add(archive, f"agent/{path.relative_to(folder).as_posix()}", path.read_bytes())
    return buffer.getvalue()


@cache
def agent_zip() -> bytes:
    return build_zip(REMOTE)


@cache
def agent_digest() -> str:
    """sha256 of the zip, the name under which a host keeps it."""
    return hashlib.sha256(agent_zip()).hexdigest()


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    from zipfile import ZIP_DEFLATED, ZipInfo

    entry = ZipInfo(name, EPOCH)
    entry.compress_type = ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, data)
