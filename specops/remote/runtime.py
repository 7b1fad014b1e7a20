"""Driver, torch and SGLang's kernel wheel: what is installed, read from files and without importing any."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any

from . import gpus

Json = Any
KERNELS = ("sglang_kernel", "sgl_kernel")
"""The wheel's names, the newer one first; both hold the package `sgl_kernel`."""
LIBRARIES = re.compile(r"^sgl_kernel/(?:(sm\d+)/)?common_ops\.[\w.-]*so$")
"""One for Hopper (`sm90/common_ops.abi3.so`) and one for all others (`sm100`); or one for all."""
DEMANDED = re.compile(r'assert_pkg_version\(\s*"(?:sglang|sgl)-kernel",\s*"([\w.+]+)"')
"""In SGLang's engine: the version without which a server on a GPU does not start."""


def read_runtime(root: str, python: str) -> dict[str, Json]:
    """{torch: {version, cuda, hip} | null, kernel: {version, libraries} | null,
    demanded: version | null, driver: {version, cuda, capability} | null}.

    `torch.cuda` is null for a CPU build; `demanded` is the kernel wheel without which this SGLang does not
    start; `libraries` are `sm90` and the like, `all` for one that is for every GPU.
    """
    sites = find_sites(Path(root), python)
    demanded = DEMANDED.search(_read(Path(root) / "srt" / "entrypoints" / "engine.py"))
    return {
        "torch": _read_torch(sites),
        "kernel": _read_kernel(sites),
        "demanded": demanded.group(1) if demanded else None,
        "driver": gpus.read_stack(),
    }


def find_sites(root: Path, python: str) -> list[Path]:
    """Folders of packages: beside SGLang, the interpreter's own (of an editable install), and
    those that these name in .pth files."""
    prefix = Path(os.path.expanduser(python)).parent.parent
    found = [
        root.parent,
        *sorted(prefix.glob("lib/python3*/site-packages")),
        *sorted(prefix.glob("lib/python3*/dist-packages")),
        *sorted(prefix.glob("local/lib/python3*/dist-packages")),
    ]
    linked = (
        Path(line.strip())
        for site in found
        for path in sorted(site.glob("*.pth"))
        for line in _read(path).splitlines()
        if line.startswith("/")
    )
    return list(dict.fromkeys([*found, *linked]))


def _read_torch(sites: list[Path]) -> dict[str, Json] | None:
    for site in sites:
        text = _read(site / "torch" / "version.py")
        if text:
            return {"version": _literal(text, "__version__"), "cuda": _literal(text, "cuda")} | {
                "hip": _literal(text, "hip")
            }
    return None


def _literal(text: str, name: str) -> str | None:
    found = re.search(rf"^{name}(?:\s*:[^=\n]*)?\s*=\s*['\"]([^'\"]+)['\"]", text, re.M)
    return found.group(1) if found else None


def _read_kernel(sites: list[Path]) -> dict[str, Json] | None:
    for site in sites:
        for name in KERNELS:
            for found in sorted(site.glob(f"{name}-*.dist-info")):
                record = _read(found / "RECORD").splitlines()
                names = [m for line in record if (m := LIBRARIES.match(line.partition(",")[0]))]
                return {
                    "version": found.name[len(name) + 1 : -len(".dist-info")],
                    "libraries": sorted({m.group(1) or "all" for m in names}),
                }
    return None


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""
