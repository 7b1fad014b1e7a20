"""`python -m benchmarks.gpu.shapes FOLDER`: an 8B-shaped target and its EAGLE-3 draft, without weights.

Configurations and a tokenizer only; serve them with `--load-format dummy`. Such a pair accepts nothing by
itself: set SGLANG_SIMULATE_ACC_LEN for anything that needs an open gate.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

VOCABULARY = 32000
TOKENS = 4000
"""Of the tokenizer: bytes and frequent pairs of Python's own source; every id is below VOCABULARY."""

TARGET: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
DRAFT = {
    **TARGET,
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "draft_vocab_size": VOCABULARY,
}
ENDS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}
NO_WEIGHTS = (2).to_bytes(8, "little") + b"{}"
"""A safetensors file that holds nothing: a folder without any weights counts as incomplete."""
CHAT = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"


def make_tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENS,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    sources = sorted(Path(json.__file__).parent.parent.glob("*.py"))[:60]
    tokenizer.train([str(path) for path in sources], trainer)
    return tokenizer


def make_models(folder: Path) -> Path:
    """`folder` with target/ and draft/ in it."""
    tokenizer = make_tokenizer()
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": CHAT, **ENDS}
    for name, config in (("target", TARGET), ("draft", DRAFT)):
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        (place / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        (place / "tokenizer_config.json").write_text(json.dumps(kind, indent=1) + "\n")
        (place / "model.safetensors").write_bytes(NO_WEIGHTS)
        tokenizer.save(str(place / "tokenizer.json"))
    return folder


if __name__ == "__main__":
    make_models(Path(sys.argv[1]))
