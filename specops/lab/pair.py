"""Makes the lab's models: a tiny target and an EAGLE-3 draft whose acceptance depends on its KV cache.

Run by the lab's own Python (`python pair.py FOLDER`): torch, safetensors and tokenizers are there. Nothing
is trained; the weights are worked out in seconds, and the same inputs give the same bytes.

The language. 128 words lie on one cycle, `after[w]`; each word owns one of four lags. The next token is the
word after the one that stands `lag` tokens before it, where the lag is that of the newest word; while the
text is shorter, the word after the one NEAR tokens back. So the text is varied, and nothing near its end
holds the answer.

The target looks the word up in its second layer: the query holds rotary phases chosen by the lag, the key
is a constant, so that the score depends on the distance alone. The draft does the same one position
earlier, but its key and value come from the target's hidden states as they lie in the draft's KV cache.
Where that cache is stale, the draft guesses wrong and acceptance falls to about 1.2, while every answer
stays right.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

Weights = dict[str, torch.Tensor]

VOCABULARY, WORDS, CONTEXT = 1024, 128, 4096
HIDDEN, INNER, HEADS, WIDTH, LAYERS = 192, 128, 2, 64, 4
CODE = 64
"""Width of a word's code of +-1."""
OWN, ANSWER = slice(0, CODE), slice(CODE, 2 * CODE)
"""Where the residual stream holds the token's own code, and the code that was looked up."""
LAG, ONE = 2 * CODE, 2 * CODE + 8
"""Where it holds the one-hot of the lag, and a constant."""
STRONG = 4.0
"""Value of that one-hot and that constant."""

LAGS = (29, 53, 77, 103)
NEAR = 8
"""Distance looked at in a short text; more than the deepest draft, so no draft step reads another's KV."""
UNSAYABLE = 2
"""Words that the draft cannot say: keeps its acceptance a bit below the most that is possible."""
KEY = 6.0
LOGIT = 11.0
"""Of the right word; every other one has at most 0.35 of it, so rounding never decides."""
ROPE_BASE, EPSILON = 10000.0, 1e-5
SPECIAL = ("<|bos|>", "<|eos|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>")
CHAT = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@dataclass(frozen=True, kw_only=True)
class Language:
    words: torch.Tensor
    """[WORDS] token ids."""
    word_of: torch.Tensor
    """[VOCABULARY] the word that a token counts as; tokens that are no words count as a random one."""
    before: torch.Tensor
    """[WORDS] the word before each on the cycle."""
    lag_of: torch.Tensor
    """[WORDS] index into LAGS."""
    code: torch.Tensor
    """[WORDS, CODE] of +-1, any two alike in less than two thirds of their places."""


def train_tokenizer(words: list[str]) -> Tokenizer:
    """Byte-level BPE in which each of the first WORDS words, with a blank before it, is one token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # The pairs of the first words are by far the most frequent, so they are merged to their ends first.
    often = [f" {word}" * (1000 if index < WORDS else 5) for index, word in enumerate(words)]
    tokenizer.train_from_iterator(often, trainer)
    return tokenizer


def make_language(tokenizer: Tokenizer, words: list[str]) -> Language:
    ids = []
    for word in words[:WORDS]:
        encoded = tokenizer.encode(f" {word}").ids
        if len(encoded) != 1:
            raise ValueError(f"{word!r} is {len(encoded)} tokens, not one")
        ids.append(encoded[0])
    word_of = torch.randint(0, WORDS, (VOCABULARY,))
    word_of[torch.tensor(ids)] = torch.arange(WORDS)
    cycle = torch.randperm(WORDS)
    before = torch.empty(WORDS, dtype=torch.long)
    before[cycle.roll(-1)] = cycle
    lag_of = (torch.arange(WORDS) % len(LAGS))[torch.randperm(WORDS)]
    return Language(words=torch.tensor(ids), word_of=word_of, before=before, lag_of=lag_of, code=draw_codes())


def draw_codes() -> torch.Tensor:
    codes: list[torch.Tensor] = []
    while len(codes) < WORDS:
        candidate = torch.randint(0, 2, (CODE,)).float() * 2 - 1
        if not codes or (torch.stack(codes) @ candidate).max() <= 20:
            codes.append(candidate)
    return torch.stack(codes)


def fit_phases(lag: int) -> torch.Tensor:
    """[WIDTH // 2] complex rotary phases that score highest `lag - 1` back, else NEAR back (convex)."""
    frequency = ROPE_BASE ** (-torch.arange(0, WIDTH, 2, dtype=torch.double) / WIDTH)
    angle = torch.arange(CONTEXT, dtype=torch.double)[:, None] * frequency
    cos, sin = angle.cos(), angle.sin()
    real = torch.zeros(WIDTH // 2, dtype=torch.double, requires_grad=True)
    imaginary = torch.zeros(WIDTH // 2, dtype=torch.double, requires_grad=True)
    solver = torch.optim.LBFGS(
        [real, imaginary],
        max_iter=400,
        line_search_fn="strong_wolfe",
        tolerance_grad=1e-9,
        tolerance_change=1e-12,
    )

    def loss() -> torch.Tensor:
        solver.zero_grad()
        score = cos @ real - sin @ imaginary
        far = score.logsumexp(0) - score[lag - 1]
        near = score[: lag - 1].logsumexp(0) - score[NEAR]
        total = far + near + 2e-4 * (real @ real + imaginary @ imaginary)
        total.backward()
        return total

    solver.step(loss)
    with torch.no_grad():
        score = cos @ real - sin @ imaginary
        found = score.softmax(0)[lag - 1], score[: lag - 1].softmax(0)[NEAR]
    if min(found) < 0.9:
        raise ValueError(f"no rotary phases fit lag {lag}: weights {found[0]:.2f} and {found[1]:.2f}")
    return torch.complex(real.detach(), imaginary.detach())


def root_mean_square(square: float) -> float:
    """Of a residual stream of this squared length; RMSNorm divides by it."""
    return math.sqrt(square / HIDDEN)


EMBEDDED = root_mean_square(CODE + 2 * STRONG**2)
ANSWERED = root_mean_square(2 * CODE + 2 * STRONG**2)
FUSED = root_mean_square(CODE + STRONG**2)
DRAFTED = root_mean_square(2 * CODE + STRONG**2)
ONE_IN = STRONG / EMBEDDED
"""The constant after the norm."""


def noise(*shape: int, size: float = 0.08) -> torch.Tensor:
    return torch.randn(*shape) * size


def write_query(weight: torch.Tensor, head: int, column: int, phases: torch.Tensor) -> None:
    """Let input `column` (of value ONE_IN) make this query, against keys of KEY in every real part."""
    scaled = phases * (math.sqrt(WIDTH) / KEY / ONE_IN)
    first, half = head * WIDTH, WIDTH // 2
    weight[first : first + half, column] = scaled.real.float()
    weight[first + half : first + WIDTH, column] = scaled.imag.float()


def random_layer(prefix: str, width_in: int, size: float = 1.0) -> Weights:
    """An ordinary layer whose effect on the residual stream is about one per cent."""
    wide = HEADS * WIDTH
    return {
        **{f"{prefix}.self_attn.{part}_proj.weight": noise(wide, width_in) for part in "qkv"},
        f"{prefix}.self_attn.o_proj.weight": noise(HIDDEN, wide, size=0.0015 * size),
        f"{prefix}.mlp.gate_proj.weight": noise(INNER, HIDDEN),
        f"{prefix}.mlp.up_proj.weight": noise(INNER, HIDDEN),
        f"{prefix}.mlp.down_proj.weight": noise(HIDDEN, INNER, size=0.002 * size),
        f"{prefix}.input_layernorm.weight": torch.ones(HIDDEN),
        f"{prefix}.post_attention_layernorm.weight": torch.ones(HIDDEN),
    }


def empty_attention(width_in: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    wide = HEADS * WIDTH
    q, k, v = (torch.zeros(wide, width_in) for _ in range(3))
    return q, k, v, torch.zeros(HIDDEN, wide)


def name_attention(prefix: str, parts: tuple[torch.Tensor, ...]) -> Weights:
    return {
        f"{prefix}.self_attn.{part}_proj.weight": part_ for part, part_ in zip("qkvo", parts, strict=True)
    }


def make_head(language: Language) -> torch.Tensor:
    """[VOCABULARY, HIDDEN]: the answer's word moved one on along the cycle; special tokens never win."""
    head = torch.zeros(VOCABULARY, HIDDEN)
    head[:, ANSWER] = language.code[language.before[language.word_of]] * 0.35
    head[language.words, ANSWER] = language.code[language.before]
    head *= LOGIT / CODE * ANSWERED
    head[: len(SPECIAL)] = 0
    head[: len(SPECIAL), ONE] = -(LOGIT + 1) * ANSWERED / STRONG
    return head


def make_target(language: Language, phases: list[torch.Tensor], head: torch.Tensor) -> Weights:
    embedding = torch.zeros(VOCABULARY, HIDDEN)
    embedding[:, OWN] = language.code[language.word_of]
    embedding[torch.arange(VOCABULARY), LAG + language.lag_of[language.word_of]] = STRONG
    embedding[:, ONE] = STRONG
    weights: Weights = {
        "model.embed_tokens.weight": embedding,
        "model.norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": head,
    }
    for layer in range(LAYERS):
        weights |= random_layer(f"model.layers.{layer}", HIDDEN)
    q, k, v, o = empty_attention(HIDDEN)
    for index, phase in enumerate(phases):
        write_query(q, 0, LAG + index, phase)
    k[: WIDTH // 2, ONE] = KEY / ONE_IN
    v[:CODE, OWN] = torch.eye(CODE)
    o[ANSWER, :CODE] = torch.eye(CODE) * EMBEDDED
    q[WIDTH:], k[WIDTH:], v[WIDTH:] = (noise(WIDTH, HIDDEN) for _ in range(3))
    o[:, WIDTH:] = noise(HIDDEN, WIDTH, size=0.0015)
    return weights | name_attention("model.layers.1", (q, k, v, o))


def make_draft(language: Language, phases: list[torch.Tensor], head: torch.Tensor) -> Weights:
    """Inputs of its layer: the normed embedding, then the normed hidden state."""
    fuse = torch.zeros(HIDDEN, 3 * HIDDEN)
    for state in range(3):
        for column in (*range(CODE), ONE):
            fuse[column, state * HIDDEN + column] = 1 / 3
    q, k, v, o = empty_attention(2 * HIDDEN)
    frequency = ROPE_BASE ** (-torch.arange(0, WIDTH, 2, dtype=torch.double) / WIDTH)
    one_earlier = torch.polar(torch.ones_like(frequency), frequency)
    for index, phase in enumerate(phases):
        write_query(q, 0, LAG + index, phase * one_earlier)
    k[: WIDTH // 2, HIDDEN + ONE] = KEY * FUSED / STRONG
    v[:CODE, HIDDEN : HIDDEN + CODE] = torch.eye(CODE)
    o[ANSWER, :CODE] = torch.eye(CODE) * FUSED
    write_query(q, 1, ONE, torch.full((WIDTH // 2,), 1.6, dtype=torch.complex128))
    k[WIDTH : WIDTH + WIDTH // 2, ONE] = KEY / ONE_IN
    v[WIDTH : WIDTH + CODE, HIDDEN + CODE : HIDDEN + 2 * CODE] = torch.eye(CODE)
    o[ANSWER, WIDTH : WIDTH + CODE] = -torch.eye(CODE) * DRAFTED
    own_head = head * (DRAFTED / ANSWERED)
    own_head[language.words[torch.randperm(WORDS)[:UNSAYABLE]]] *= 0.2
    return {
        **random_layer("midlayer", 2 * HIDDEN, size=0.3),
        **name_attention("midlayer", (q, k, v, o)),
        "midlayer.hidden_norm.weight": torch.ones(HIDDEN),
        "fc.weight": fuse,
        "norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": own_head,
        "d2t": torch.zeros(VOCABULARY, dtype=torch.int64),
        "t2d": torch.ones(VOCABULARY, dtype=torch.bool),
    }


def write_model(folder: Path, tokenizer: Tokenizer, weights: Weights, config: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    ends = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    shared = {
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": WIDTH,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": EPSILON,
        "rope_theta": ROPE_BASE,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "attention_bias": False,
        "mlp_bias": False,
        **ends,
    }
    words = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[0],
        "eos_token": SPECIAL[1],
        "pad_token": SPECIAL[1],
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT,
    }
    for name, content in (
        ("config.json", shared | config),
        ("generation_config.json", ends),
        ("tokenizer_config.json", words),
    ):
        (folder / name).write_text(json.dumps(content, indent=1) + "\n")
    tokenizer.save(str(folder / "tokenizer.json"))
    whole = {name: tensor.contiguous() for name, tensor in weights.items()}
    save_file(whole, str(folder / "model.safetensors"), metadata={"format": "pt"})


def main(out: Path) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    words = Path(__file__).with_name("words.txt").read_text().split()
    tokenizer = train_tokenizer(words)
    language = make_language(tokenizer, words)
    phases = [fit_phases(lag) for lag in LAGS]
    head = make_head(language)
    target = make_target(language, phases, head)
    draft = make_draft(language, phases, head)
    architecture = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": LAYERS}
    write_model(out / "target", tokenizer, target, architecture)
    drafting = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": VOCABULARY,
        "target_hidden_size": HIDDEN,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]},
    }
    write_model(out / "draft", tokenizer, draft, drafting)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
