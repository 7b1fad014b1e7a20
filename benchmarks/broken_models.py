"""Copies of the lab's model pair, each with one thing wrong."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
WIDER = """
import json, sys
from pathlib import Path
from typing import Any
from safetensors.torch import load_file, save_file
folder = Path(sys.argv[1])
weights = load_file(str(folder / "model.safetensors"))
fuse = weights["fc.weight"]
weights["fc.weight"] = fuse.new_zeros(fuse.shape[0], 2 * fuse.shape[1])
save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
config = json.loads((folder / "config.json").read_text())
config["target_hidden_size"] *= 2
(folder / "config.json").write_text(json.dumps(config))
"""


def copy(model: Path, into: Path) -> Path:
    """Links where nothing is changed; a changed file is written anew."""
    shutil.copytree(model, into, copy_function=os.link)
    return into


def replace(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(data)


Table = dict[str, dict[str, Any]]


def _header(raw: bytes) -> tuple[Table, int]:
    """A safetensors file's table of tensors, and where its bytes begin."""
    (length,) = struct.unpack("<Q", raw[:8])
    table: Table = json.loads(raw[8 : 8 + length])
    return table, 8 + length


def shard(folder: Path, *, missing: bool = False, truncated: bool = False) -> None:
    """Split the one weight file in two with an index, and take the second away or cut it short."""
    raw = (folder / WEIGHTS).read_bytes()
    table, start = _header(raw)
    table.pop("__metadata__", None)
    names = sorted(table)
    half = len(names) // 2
    index = {}
    for number, part in enumerate((names[:half], names[half:]), start=1):
        file = f"model-{number:05}-of-00002.safetensors"
        index.update(dict.fromkeys(part, file))
        _write(folder / file, raw[start:], {name: table[name] for name in part})
    replace(folder / INDEX, json.dumps({"metadata": {}, "weight_map": index}).encode())
    (folder / WEIGHTS).unlink()
    second = folder / "model-00002-of-00002.safetensors"
    if missing:
        second.unlink()
    if truncated:
        second.write_bytes(second.read_bytes()[:-4096])


def _write(path: Path, data: bytes, tensors: Table) -> None:
    body = b""
    table: Table = {"__metadata__": {"format": "pt"}}
    for name, tensor in tensors.items():
        begin, end = tensor["data_offsets"]
        table[name] = {**tensor, "data_offsets": [len(body), len(body) + end - begin]}
        body += data[begin:end]
    head = json.dumps(table).encode()
    head += b" " * (-len(head) % 8)
    path.write_bytes(struct.pack("<Q", len(head)) + head + body)


def missing_shard(folder: Path, python: Path) -> None:
    shard(folder, missing=True)


def truncated_shard(folder: Path, python: Path) -> None:
    shard(folder, truncated=True)


def without_config(folder: Path, python: Path) -> None:
    (folder / "config.json").unlink()


def wider_fusion(folder: Path, python: Path) -> None:
    """A draft that was trained for a target of twice the hidden size: it loads, and fails at first use."""
    for name in (WEIGHTS, "config.json"):
        replace(folder / name, (folder / name).read_bytes())
    subprocess.run([str(python), "-c", WIDER, str(folder)], check=True, capture_output=True)


Break = Callable[[Path, Path], None]
"""Called with the copy and with the lab's Python."""
