"""Tiny models of every family, made by transformers, and how the tests run a Model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
import transformers
from torch import Tensor

from mooncake_core.cache.kv_pool import KvPool
from mooncake_core.config.tables import ModelConfig
from mooncake_core.model import Model, SequenceInput, load_model

torch.set_num_threads(1)

VOCAB = 320
_SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "initializer_range": 0.2,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}


def config_of(kind: str) -> transformers.PretrainedConfig:
    if kind == "llama":
        return transformers.LlamaConfig(**_SHAPE, tie_word_embeddings=True)
    if kind == "llama-biased":
        return transformers.LlamaConfig(**_SHAPE, attention_bias=True, mlp_bias=True)
    if kind == "llama3-rope":
        return transformers.LlamaConfig(**_SHAPE, rope_parameters=_LLAMA3)
    if kind == "mistral":
        return transformers.MistralConfig(**_SHAPE, sliding_window=None)
    if kind == "qwen2":
        return transformers.Qwen2Config(**_SHAPE)
    assert kind == "qwen3", kind
    return transformers.Qwen3Config(**_SHAPE, head_dim=32)


FAMILIES = ("llama", "llama-biased", "llama3-rope", "mistral", "qwen2", "qwen3")


def build(config: transformers.PretrainedConfig) -> transformers.PreTrainedModel:
    """Return a random model of `config`, in which biases and norms are random as well."""
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def save(kind: str, folder: Path) -> transformers.PreTrainedModel:
    """Write a tiny model of a family to `folder`; return it."""
    model = build(config_of(kind))
    model.save_pretrained(folder)
    return model


def load(folder: Path, *, dtype: str = "float32", backend: str = "auto") -> Model:
    return load_model(ModelConfig(path=str(folder), dtype=dtype, device="cpu", backend=backend))


def tokens_of(count: int, vocab: int = VOCAB, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocab, (count,), generator=generator).tolist()


def feed(
    model: Model,
    pool: KvPool,
    pages: Sequence[int],
    tokens: Sequence[int],
    *,
    start: int = 0,
    chunk: int = 0,
) -> Tensor:
    """Compute `tokens` at `start` in chunks; return the last logits."""
    chunk = chunk or len(tokens)
    logits = torch.empty(0)
    for offset in range(0, len(tokens), chunk):
        part = list(tokens[offset : offset + chunk])
        sequence = SequenceInput(pages=pages, start=start + offset, length=len(part))
        logits = model.forward(torch.tensor(part), [sequence], pool)
    return logits[0]


def reference(model: transformers.PreTrainedModel, tokens: Sequence[int]) -> Tensor:
    """Return the logits after every token, as transformers has them: [tokens, vocab]."""
    with torch.inference_mode():
        return model(torch.tensor([list(tokens)]), use_cache=False).logits[0].float()
