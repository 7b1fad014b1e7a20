"""`python3 -m benchmarks.gpu.shards FOLDER`: random weights for the 8B shape, in shards, with their index.

About 16 GB: a load without weights never says how far it is. Needs torch and safetensors, and a GPU to be
quick.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.gpu.shapes import TARGET, make_models

LAYERS_A_SHARD = 8
SPREAD = 0.02


def layer_shapes(number: int) -> dict[str, tuple[int, ...]]:
    """Name -> shape, as the public Llama checkpoints name them."""
    hidden, inner = TARGET["hidden_size"], TARGET["intermediate_size"]
    keys = TARGET["num_key_value_heads"] * TARGET["head_dim"]
    within = {
        "self_attn.q_proj": (hidden, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, hidden),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
    }
    return {f"model.layers.{number}.{name}.weight": shape for name, shape in within.items()}


def shards() -> list[dict[str, tuple[int, ...]]]:
    hidden, words, layers = TARGET["hidden_size"], TARGET["vocab_size"], TARGET["num_hidden_layers"]
    ends = {"model.embed_tokens.weight": (words, hidden), "lm_head.weight": (words, hidden)}
    found: list[dict[str, tuple[int, ...]]] = [{**ends, "model.norm.weight": (hidden,)}]
    for first in range(0, layers, LAYERS_A_SHARD):
        found.append({})
        for number in range(first, min(first + LAYERS_A_SHARD, layers)):
            found[-1].update(layer_shapes(number))
    return found


def write_shards(folder: Path) -> int:
    """Bytes of weights written to `folder`, which has the shape's configuration already."""
    import torch
    from safetensors.torch import save_file

    place = "cuda" if torch.cuda.is_available() else "cpu"
    all_shards, where, total = shards(), dict[str, str](), 0
    for number, shapes in enumerate(all_shards, 1):
        name = f"model-{number:05d}-of-{len(all_shards):05d}.safetensors"
        tensors: dict[str, Any] = {}
        for key, shape in shapes.items():
            tensors[key] = (torch.randn(shape, device=place) * SPREAD).to(torch.bfloat16).cpu()
            total += 2 * tensors[key].numel()
            where[key] = name
        save_file(tensors, str(folder / name), metadata={"format": "pt"})
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index) + "\n")
    return total


if __name__ == "__main__":
    models = make_models(Path(sys.argv[1]))
    (models / "target" / "model.safetensors").unlink()
    print(f"{write_shards(models / 'target') / 1e9:.1f} GB", flush=True)
