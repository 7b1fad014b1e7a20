"""Results that outlive a command: JSON below the user's data folder."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specops.errors import SpecopsError

Json = Any


def keep_result(kind: str, host: str, result: Json, name: str = "") -> str:
    """Write it as `<kind>-<host>-<name, else the time>.json` and return the path."""
    at = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    path = _data() / "results" / f"{kind}-{_plain(host)}-{name or at}.json"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(json.dumps(result, ensure_ascii=False, indent=1), encoding="utf-8")
    except OSError as error:
        raise SpecopsError(f"the result cannot be kept in {path}: {error.strerror}") from error
    return str(path)


def write_text(path: Path, text: str) -> str:
    """Raises SpecopsError naming the path."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SpecopsError(f"{path} cannot be written: {error.strerror}") from error
    return str(path)


def keep_proof(host: str, result: Mapping[str, Json], deploy: str = "") -> dict[str, str]:
    """Write JSON and picture, named by the deploy or the time: {"json": path, "picture": path}."""
    from specops.ui.timeline import draw_svg

    kept = keep_result("smoke", host, result, deploy)
    title = f"boundary smoke test of {host}" + (f", deploy {deploy}" if deploy else "")
    drawn = draw_svg(result.get("timeline") or {}, title, result.get("checks") or ())
    return {"json": kept, "picture": keep_picture(kept, drawn)}


def keep_picture(beside: str, svg: str) -> str:
    """Write an SVG next to a kept result and return the path."""
    return write_text(Path(beside).with_suffix(".svg"), svg)


def evidence_path(host: str, deploy: str) -> Path:
    """Where the evidence of a failed deploy is kept on this machine."""
    return _data() / "evidence" / _plain(host) / f"{_plain(deploy)}.tar.gz"


def _data() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "specops"


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)
