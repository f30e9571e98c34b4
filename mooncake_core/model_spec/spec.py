"""`config.json` of a Hugging Face checkpoint -> how large its KV cache is.

Exact for decoder-only models in which every layer keeps K and V of every token (MHA, GQA, MQA).
Whatever keeps something else is refused with the key that says so; a wrong number is worse than
none. Reads one file; otherwise pure.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from mooncake_core.errors import ModelError
from mooncake_core.model_spec.known import KNOWN

ELEMENT_BYTES: Mapping[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2}

FULL_ATTENTION = frozenset(
    {
        *("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "smollm3"),
        *("phi3", "gemma", "granite", "granitemoe", "olmo", "olmo2", "olmoe", "starcoder2"),
        *("stablelm", "glm4_moe", "minimax_m2"),
    }
)
"""`model_type`s whose layers are all full attention unless a key below says otherwise."""

# Windows are off in these unless `use_sliding_window` is true.
_WINDOW_IS_OFF_BY_DEFAULT = ("qwen2", "qwen3", "smollm3")

_OTHER_CACHES = {
    "kv_lora_rank": "multi-head latent attention",
    "index_topk": "sparse attention with an indexer",
    "attention_chunk_size": "chunked attention",
    "full_attention_interval": "a hybrid of full and linear attention",
    "hybrid_override_pattern": "a hybrid of attention and state-space layers",
    "layers_block_type": "a hybrid of layer types",
    "attn_layer_indices": "a hybrid of attention and state-space layers",
    "linear_num_value_heads": "linear attention",
    "mamba_d_state": "state-space layers",
    "ssm_state_size": "state-space layers",
    "num_kv_shared_layers": "layers that share one cache",
    "cla_share_factor": "layers that share one cache",
}
"""Keys that, if they are set and not 0, say that a layer keeps something else."""


class ModelSpec(Struct, frozen=True, kw_only=True):
    """What a model keeps for each token."""

    name: str
    layers: int
    heads: int
    """Of queries."""
    kv_heads: int
    head_dim: int
    dtype: str
    """Of the checkpoint; the cache may be kept in another one."""
    context_tokens: int
    """The longest context that the checkpoint declares; 0 if it does not."""
    source: str
    """Where the numbers are from."""

    def bytes_per_token(self, dtype: str = "") -> int:
        """Return the bytes of K and V of one token over all layers; "": in the model's dtype."""
        element = ELEMENT_BYTES[dtype or self.dtype]
        return 2 * self.layers * self.kv_heads * self.head_dim * element


def load_spec(model: str) -> ModelSpec:
    """Return the spec of a built-in name, a `config.json` or a folder with one.

    Raises:
        ModelError: there is none, it is broken, or its architecture cannot be sized.
    """
    path = Path(model)
    if not path.exists():
        name = _built_in(model)
        if name is None:
            near = difflib.get_close_matches(model.lower(), KNOWN, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ModelError(
                f"{model}: neither a file, a folder nor a built-in name; {hint}built in: "
                f"{', '.join(KNOWN)}"
            )
        return read_spec(KNOWN[name].config, name, KNOWN[name].source)
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{file}: cannot read it: {error.strerror}") from error
    except ValueError as error:
        raise ModelError(f"{file}: not JSON: {error}") from error
    if not isinstance(config, dict):
        raise ModelError(f"{file}: not a JSON object")
    return read_spec(config, str(file), str(file))


def _built_in(name: str) -> str | None:
    """Return the built-in model that is meant, however its dashes are set: llama3.1-70b."""
    letters = name.lower().replace("-", "")
    return next((known for known in KNOWN if known.replace("-", "") == letters), None)


def read_spec(config: Mapping[str, Any], name: str, source: str) -> ModelSpec:
    """Return the spec that a decoded `config.json` describes; `name` opens error messages."""
    _refuse_what_is_not_full_attention(config, name)
    heads = _count(config, name, "num_attention_heads")
    dtype = str(config.get("dtype") or config.get("torch_dtype"))
    return ModelSpec(
        name=name,
        layers=_count(config, name, "num_hidden_layers"),
        heads=heads,
        kv_heads=_count(config, name, "num_key_value_heads", default=heads),
        head_dim=_head_dim(config, name, heads),
        dtype=dtype if dtype in ELEMENT_BYTES else "bfloat16",
        context_tokens=_count(config, name, "max_position_embeddings", default=0),
        source=source,
    )


def _head_dim(config: Mapping[str, Any], name: str, heads: int) -> int:
    """An explicit head_dim wins: hidden_size / heads is wrong for many models (Qwen3-0.6B)."""
    if config.get("head_dim") is not None:
        return _count(config, name, "head_dim")
    hidden = _count(config, name, "hidden_size")
    if hidden % heads:
        raise ModelError(
            f"{name}: hidden_size {hidden} is no multiple of num_attention_heads {heads}, "
            "and there is no head_dim"
        )
    return hidden // heads


def _count(config: Mapping[str, Any], name: str, key: str, default: int | None = None) -> int:
    value = config.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelError(f"{name}: {key}: expected a positive integer, got {value!r}")
    return value


def _refuse_what_is_not_full_attention(config: Mapping[str, Any], name: str) -> None:
    for key, what in _OTHER_CACHES.items():
        if config.get(key):
            raise _cannot_size(name, key, config[key], what)
    model_type = config.get("model_type")
    if model_type not in FULL_ATTENTION:
        raise _cannot_size(name, "model_type", model_type, "an architecture not known here")
    kinds = config.get("layer_types") or []
    other = next((kind for kind in kinds if kind != "full_attention"), None)
    if other is not None:
        raise _cannot_size(name, "layer_types", other, "layers of several kinds")
    # MiniMax: 1 is softmax attention, anything else is linear.
    if any(kind != 1 for kind in config.get("attn_type_list") or []):
        raise _cannot_size(name, "attn_type_list", config["attn_type_list"], "linear attention")
    if not kinds and _has_window(config, str(model_type)):
        raise _cannot_size(name, "sliding_window", config["sliding_window"], "a sliding window")


def _has_window(config: Mapping[str, Any], model_type: str) -> bool:
    """Whether some layer keeps less than the longest context."""
    window = config.get("sliding_window")
    is_off_by_default = model_type.startswith(_WINDOW_IS_OFF_BY_DEFAULT)
    if not window or not config.get("use_sliding_window", not is_off_by_default):
        return False
    # Qwen: only layers from max_window_layers on have the window.
    first = config.get("max_window_layers") or 0
    if is_off_by_default and first >= (config.get("num_hidden_layers") or 0):
        return False
    return bool(window < (config.get("max_position_embeddings") or float("inf")))


def _cannot_size(name: str, key: str, value: object, what: str) -> ModelError:
    text = str(value) if len(str(value)) <= 40 else f"{str(value)[:40]}…"
    return ModelError(f"{name}: {key} = {text}: {what}; its KV cache cannot be sized yet")
