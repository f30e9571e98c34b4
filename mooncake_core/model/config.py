"""config.json of the families that the own runtime computes, as one typed shape.

Families: Llama (with Llama 3 rope scaling), Mistral, Qwen2, Qwen3; dense, full attention. Whatever
would change the results and is not computed here is refused by name.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mooncake_core.errors import ModelError

Json = dict[str, Any]

FAMILIES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")


@dataclass(frozen=True, kw_only=True)
class Llama3Rope:
    """Llama 3's stretching of low rotary frequencies."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context_tokens: int


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """A dense decoder with grouped-query attention, rotary positions and a gated MLP."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context_tokens: int
    norm_eps: float
    rope_theta: float
    rope_scaling: Llama3Rope | None
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    tied: bool
    """The output projection is the embedding."""
    initializer_range: float
    """Standard deviation of random weights."""


def read_config(file: Path) -> Json:
    """Return the object in a config.json.

    Raises:
        ModelError: not a file, or not a JSON object.
    """
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file}: cannot read it as JSON: {error}") from error
    if not isinstance(config, dict):
        raise ModelError(f"{file}: a JSON object is needed, this is a {type(config).__name__}")
    return config


def architecture(config: Json) -> str:
    """Return the class name that the checkpoint was made for, or "" when it says none."""
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def parse_config(config: Json) -> DecoderConfig:
    """Return the shape that `config` describes.

    Raises:
        ModelError: a value is missing or impossible, or asks for what is not computed here.
    """
    family = architecture(config)
    if family not in FAMILIES:
        raise ModelError(
            f"config.json: architecture {family!r} is not one of {', '.join(FAMILIES)}"
        )
    _refuse_unsupported(config, family)
    heads, hidden = _count(config, "num_attention_heads"), _count(config, "hidden_size")
    bias = bool(config.get("attention_bias", False))
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    shape = DecoderConfig(
        layers=_count(config, "num_hidden_layers"),
        hidden=hidden,
        intermediate=_count(config, "intermediate_size"),
        heads=heads,
        kv_heads=_count(config, "num_key_value_heads", heads),
        head_dim=_count(config, "head_dim", 128 if family.startswith("Qwen3") else hidden // heads),
        vocab=_count(config, "vocab_size"),
        context_tokens=_count(config, "max_position_embeddings"),
        norm_eps=_number(config, "rms_norm_eps", 1e-6),
        rope_theta=_number({**rope, **config}, "rope_theta", 10_000.0),
        rope_scaling=_rope_scaling(rope),
        qkv_bias=bias or family.startswith("Qwen2"),
        output_bias=bias and not family.startswith("Qwen2"),
        mlp_bias=bool(config.get("mlp_bias", False)),
        qk_norm=family.startswith("Qwen3"),
        tied=bool(config.get("tie_word_embeddings", False)),
        initializer_range=_number(config, "initializer_range", 0.02),
    )
    if shape.heads % shape.kv_heads:
        raise ModelError(
            f"config.json: {shape.heads} heads cannot share {shape.kv_heads} KV heads evenly"
        )
    if shape.head_dim % 2:
        raise ModelError(
            f"config.json: head_dim is {shape.head_dim}; rotary positions need it even"
        )
    return shape


def _refuse_unsupported(config: Json, family: str) -> None:
    if "quantization_config" in config:
        raise ModelError("config.json: quantization_config: quantized weights are not supported")
    activation = config.get("hidden_act", "silu")
    if activation != "silu":
        raise ModelError(f"config.json: hidden_act: {activation!r} is not supported; silu is")
    if config.get("partial_rotary_factor", 1.0) != 1.0:
        raise ModelError("config.json: partial_rotary_factor is not supported")
    refuse_windows(config, family)


def refuse_windows(config: Json, family: str) -> None:
    """Raise ModelError if `config` asks for anything but full attention in some layer."""
    other = set(config.get("layer_types") or ()) - {"full_attention"}
    if other:
        raise ModelError(
            f"config.json: layer_types: {min(other)!r} is not supported, only full attention"
        )
    # Mistral's window is on unless the file says null; Qwen's is off unless the file says so.
    default = 4096 if family.startswith("Mistral") else None
    window = config.get("sliding_window", default)
    if family.startswith("Qwen") and not config.get("use_sliding_window", False):
        window = None
    if window is not None and window < config.get("max_position_embeddings", math.inf):
        raise ModelError(f"config.json: sliding_window of {window} tokens is not supported")


def _rope_scaling(rope: Json) -> Llama3Rope | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise ModelError(f"config.json: rope scaling {kind!r} is not supported; llama3 is")
    return Llama3Rope(
        factor=_number(rope, "factor"),
        low_freq_factor=_number(rope, "low_freq_factor"),
        high_freq_factor=_number(rope, "high_freq_factor"),
        original_context_tokens=_count(rope, "original_max_position_embeddings"),
    )


def _count(config: Json, key: str, default: int | None = None) -> int:
    value = config.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 31:
        raise ModelError(f"config.json: {key}: a positive whole number is needed, not {value!r}")
    return value


def _number(config: Json, key: str, default: float | None = None) -> float:
    value = config.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ModelError(f"config.json: {key}: a positive number is needed, not {value!r}")
    return float(value)
