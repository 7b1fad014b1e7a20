"""`python widen_pair.py PAIR OUT HEADS`: the lab's pair with more attention heads, which add nothing.

Run by an install's own Python. Queries, keys and values of the added heads are zero and so are their
columns of the output projection: the same words come out, and a rank has heads of its own.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


def widen(weight: torch.Tensor, name: str, heads: int, width: int) -> torch.Tensor:
    if any(f".{part}_proj." in name for part in "qkv"):
        added = torch.zeros(heads * width - weight.shape[0], weight.shape[1], dtype=weight.dtype)
        return torch.cat([weight, added]).contiguous()
    if ".o_proj." in name:
        added = torch.zeros(weight.shape[0], heads * width - weight.shape[1], dtype=weight.dtype)
        return torch.cat([weight, added], dim=1).contiguous()
    return weight


def main(pair: Path, out: Path, heads: int) -> None:
    for model in ("target", "draft"):
        shutil.copytree(pair / model, out / model, dirs_exist_ok=True)
        config = json.loads((pair / model / "config.json").read_text())
        width = config["head_dim"]
        config |= {"num_attention_heads": heads, "num_key_value_heads": heads}
        (out / model / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        weights = load_file(str(pair / model / "model.safetensors"))
        wide = {name: widen(weight, name, heads, width) for name, weight in weights.items()}
        save_file(wide, str(out / model / "model.safetensors"), metadata={"format": "pt"})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
