"""Model folders: there, and with every file that a load needs."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Json = Any
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "tiktoken.model")


class Hub:
    """Where a process with this environment keeps models of the hub, and whether it may fetch them."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        home = environ.get("HOME") or os.path.expanduser("~")
        caches = environ.get("XDG_CACHE_HOME") or f"{home}/.cache"
        hf_home = environ.get("HF_HOME") or f"{caches}/huggingface"
        named = environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE") or f"{hf_home}/hub"
        self.cache = named.replace("~", home, 1) if named.startswith("~/") else named
        said = environ.get("HF_HUB_OFFLINE") or environ.get("TRANSFORMERS_OFFLINE") or ""
        self.offline = said.upper() in ("1", "ON", "YES", "TRUE")


def hub_of(base: Mapping[str, str], change: Mapping[str, Json]) -> Hub:
    """Of a launch: `base` as its environment starts, `change` {set: {name: value}, unset: [name]} over it."""
    left = {name: value for name, value in base.items() if name not in (change.get("unset") or ())}
    return Hub({**left, **{str(name): str(value) for name, value in (change.get("set") or {}).items()}})


def read_model(path: str, hub: Hub | None = None) -> dict[str, Json]:
    """{exists, complete, detail, folder, bytes, files, tokenizer, config}; of one that is named as the hub
    does (`org/name`) also {cache, offline}: where it was looked for, and whether it can be fetched."""
    hub = hub or Hub(os.environ)
    named = {"cache": hub.cache, "offline": hub.offline} if _of_hub(path) else {}
    folder = find_folder(path, hub)
    if folder is None:
        return {"exists": False, "complete": False, "detail": f"no such folder: {path}", "bytes": 0, **named}
    missing = list(_missing(folder))
    weights = find_weights(folder)
    return {
        **named,
        "exists": True,
        "folder": str(folder),
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


def find_folder(path: str, hub: Hub | None = None) -> Path | None:
    folder = Path(os.path.expanduser(path))
    if folder.is_dir():
        return folder
    if not _of_hub(path):
        return None
    repo = Path((hub or Hub(os.environ)).cache) / f"models--{path.replace('/', '--')}"
    with contextlib.suppress(OSError):
        current = repo / "snapshots" / (repo / "refs" / "main").read_text().strip()
        if current.is_dir():
            return current
    found = sorted((repo / "snapshots").glob("*"), key=lambda entry: entry.stat().st_mtime)
    return found[-1] if found else None


def _of_hub(path: str) -> bool:
    return not path.startswith(("/", "~", ".")) and path.count("/") <= 1


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
