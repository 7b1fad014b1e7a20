"""Files that a host sends, written here."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specops.errors import SpecopsError

Json = Any


def write_files(bundle: Mapping[str, Json], into: str) -> list[dict[str, Json]]:
    """Write `bundle["files"]` ({name, base64}) below `into`, 0600: a log may hold users' prompts.

    A name that would leave the folder is refused: it comes from another machine.
    """
    root = Path(into).expanduser().resolve()
    written = []
    for file in bundle.get("files") or ():
        path = (root / str(file["name"])).resolve()
        if not path.is_relative_to(root):
            raise SpecopsError(f"the host named a file outside of {root}: {file['name']}")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = base64.b64decode(file["base64"])
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as target:
            target.write(data)
        written.append({"name": str(path), "size": len(data)})
    return written
