"""Well-known models, as far as the size of their KV cache needs: their own `config.json`s. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct


class Known(Struct, frozen=True, kw_only=True):
    """A model's configuration and where it is from."""

    config: Mapping[str, Any]
    source: str


def _known(
    repository: str, model_type: str, shape: tuple[int, int, int, int], context_tokens: int
) -> Known:
    """`shape` is (layers, heads, KV heads, head_dim)."""
    layers, heads, kv_heads, head_dim = shape
    return Known(
        config={
            "model_type": model_type,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": head_dim,
            "max_position_embeddings": context_tokens,
            "torch_dtype": "bfloat16",
        },
        source=f"config.json of {repository} on Hugging Face",
    )


KNOWN: Mapping[str, Known] = MappingProxyType(
    {
        "smollm2-135m-instruct": _known(
            "HuggingFaceTB/SmolLM2-135M-Instruct", "llama", (30, 9, 3, 64), 8192
        ),
        "llama-2-7b": _known("meta-llama/Llama-2-7b-hf", "llama", (32, 32, 32, 128), 4096),
        "llama-3.1-8b": _known("meta-llama/Llama-3.1-8B", "llama", (32, 32, 8, 128), 131_072),
        "llama-3.1-70b": _known("meta-llama/Llama-3.1-70B", "llama", (80, 64, 8, 128), 131_072),
        # Early copies declare 16 KV heads: a layout in which each is stored twice.
        "llama-3.1-405b": _known("meta-llama/Llama-3.1-405B", "llama", (126, 128, 8, 128), 131_072),
        "mixtral-8x7b": _known("mistralai/Mixtral-8x7B-v0.1", "mixtral", (32, 32, 8, 128), 32_768),
        "mistral-large-2": _known(
            "mistralai/Mistral-Large-Instruct-2407", "mistral", (88, 96, 8, 128), 131_072
        ),
        "qwen2.5-7b": _known("Qwen/Qwen2.5-7B", "qwen2", (28, 28, 4, 128), 131_072),
        "qwen2.5-72b": _known("Qwen/Qwen2.5-72B", "qwen2", (80, 64, 8, 128), 131_072),
        "qwen3-0.6b": _known("Qwen/Qwen3-0.6B", "qwen3", (28, 16, 8, 128), 40_960),
        "qwen3-8b": _known("Qwen/Qwen3-8B", "qwen3", (36, 32, 8, 128), 40_960),
        "qwen3-32b": _known("Qwen/Qwen3-32B", "qwen3", (64, 64, 8, 128), 40_960),
        "qwen3-235b-a22b": _known("Qwen/Qwen3-235B-A22B", "qwen3_moe", (94, 64, 4, 128), 40_960),
        "phi-4": _known("microsoft/phi-4", "phi3", (40, 40, 10, 128), 16_384),
    }
)
"""Lower-case name -> configuration."""
