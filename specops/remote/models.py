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
    """{exists, complete, detail, bytes, files, tokenizer, config}. A hub id (`org/name`) is looked for in
    the hub's cache."""
    folder = find_folder(path)
    if folder is None:
        return {"exists": False, "complete": False, "detail": f"no such folder: {path}", "bytes": 0}
    missing = list(_missing(folder))
    weights = find_weights(folder)
    return {
        "exists": True,
        "complete": not missing,
        "detail": "; ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else ""),
        "bytes": sum(map(_size, weights)),
        "files": len(weights),
        "tokenizer": has_tokenizer(folder),
        "config": _read_config(folder),
    }


def find_weights(folder: Path) -> list[Path]:
    """The weight files that a load reads: those of the index where there is one, else of one kind."""
    for index in INDEXES:
        shards = _shards(folder / index)
        if shards:
            return [folder / shard for shard in shards]
    for pattern in WEIGHTS:
        found = sorted(folder.glob(pattern))
        if found:
            return found
    return []


def _shards(index: Path) -> list[str]:
    try:
        return sorted({str(name) for name in json.loads(index.read_bytes())["weight_map"].values()})
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return []


def _read_config(folder: Path) -> dict[str, Json]:
    """What a draft and its target must agree on; a multimodal model keeps it under `text_config`."""
    try:
        whole = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(whole, dict):
        return {}
    inner = whole.get("text_config")
    text = inner if isinstance(inner, dict) else {}
    names = ("hidden_size", "vocab_size", "draft_vocab_size", "target_hidden_size", "num_hidden_layers")
    config = {name: whole.get(name, text.get(name)) for name in names}
    return {**config, "architectures": whole.get("architectures") or []}


def find_folder(path: str) -> Path | None:
    folder = Path(os.path.expanduser(path))
    if folder.is_dir():
        return folder
    if path.startswith(("/", "~", ".")) or path.count("/") > 1:
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
        if (folder / index).exists():
            shards = _shards(folder / index)
            if not shards:
                return [f"{index} is damaged"]
            return [f"{shard} is {_state(folder / shard)}" for shard in shards if _size(folder / shard) == 0]
    files = find_weights(folder)
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
