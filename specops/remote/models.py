"""Model folders: there, and with every file that a load needs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

Json = Any
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "tiktoken.model")


def read_model(path: str) -> dict[str, Json]:
    """{exists, complete, detail, bytes}. A hub id (`org/name`) is looked for in the hub's cache."""
    folder = _find(path)
    if folder is None:
        return {"exists": False, "complete": False, "detail": f"no such folder: {path}", "bytes": 0}
    missing = list(_missing(folder))
    size = sum(_size(file) for pattern in WEIGHTS for file in folder.glob(pattern))
    return {"exists": True, "complete": not missing, "detail": "; ".join(missing[:5]), "bytes": size}


def _find(path: str) -> Path | None:
    folder = Path(os.path.expanduser(path))
    if folder.is_dir():
        return folder
    if path.startswith(("/", "~", ".")) or path.count("/") != 1:
        return None
    cache = os.environ.get("HF_HUB_CACHE") or os.path.join(
        os.environ.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface"), "hub"
    )
    snapshots = Path(cache) / f"models--{path.replace('/', '--')}" / "snapshots"
    found = sorted(snapshots.glob("*"), key=lambda entry: entry.stat().st_mtime)
    return found[-1] if found else None


def _missing(folder: Path) -> list[str]:
    wrong = []
    if _size(folder / "config.json") == 0:
        wrong.append("config.json is missing")
    wrong.extend(_missing_weights(folder))
    return wrong


def _missing_weights(folder: Path) -> list[str]:
    for index in INDEXES:
        if not (folder / index).exists():
            continue
        try:
            shards = sorted(set(json.loads((folder / index).read_bytes())["weight_map"].values()))
        except (OSError, ValueError, KeyError, AttributeError):
            return [f"{index} is damaged"]
        return [f"{shard} is {_state(folder / shard)}" for shard in shards if _size(folder / shard) == 0]
    files = [file for pattern in WEIGHTS for file in folder.glob(pattern)]
    if not files:
        return ["no weights (*.safetensors, *.bin)"]
    return [f"{file.name} is empty" for file in files if _size(file) == 0]


def has_tokenizer(folder: Path) -> bool:
    return any((folder / name).exists() for name in TOKENIZERS)


def _state(path: Path) -> str:
    return "empty" if path.exists() else "missing"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
