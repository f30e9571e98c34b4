"""Turning a GGUF file into a folder of the Hugging Face form. Reads one file, writes one folder.

The folder gets config.json, model.safetensors (float32), tokenizer.json and tokenizer_config.json.
Tensors are written one by one, so memory holds the largest of them, not the model.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from mooncake_core.errors import ModelError
from mooncake_core.model_spec.gguf import Array, GgufFile
from mooncake_core.model_spec.gguf_tokenizer import tokenizer_files

_ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TENSOR = re.compile(r"(?:blk\.([0-9]+)\.)?([a-z_]+)\.(weight|bias)")


def convert_gguf(path: Path, folder: Path) -> None:
    """Write the model in `path` into `folder`, which exists.

    Raises:
        ModelError: the file is damaged, or holds something that is not known here.
        OSError: the folder cannot be written.
    """
    with GgufFile(path) as file:
        config = _config(file)
        for name, text in tokenizer_files(file, config["max_position_embeddings"]).items():
            (folder / name).write_text(text, encoding="utf-8")
        _write_weights(file, config, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _config(file: GgufFile) -> dict[str, Any]:
    kind = file.get("general.architecture", str)
    if kind not in _ARCHITECTURES:
        raise ModelError(
            f"{file.path}: architecture {kind!r} is not known; known: {', '.join(_ARCHITECTURES)}"
        )
    if file.metadata.get(f"{kind}.rope.scaling.type", "none") != "none" or (
        "rope_freqs.weight" in file.tensors
    ):
        raise ModelError(
            f"{file.path}: scaled rope in a GGUF is not known; use the original weights"
        )
    heads = file.get(f"{kind}.attention.head_count", int)
    hidden = file.get(f"{kind}.embedding_length", int)
    if heads <= 0:
        raise ModelError(f"{file.path}: {kind}.attention.head_count is {heads}")
    return {
        "architectures": [_ARCHITECTURES[kind]],
        "model_type": kind,
        "hidden_size": hidden,
        "intermediate_size": file.get(f"{kind}.feed_forward_length", int),
        "num_hidden_layers": file.get(f"{kind}.block_count", int),
        "num_attention_heads": heads,
        "num_key_value_heads": file.get(f"{kind}.attention.head_count_kv", int, heads),
        "head_dim": file.get(f"{kind}.attention.key_length", int, hidden // heads),
        "vocab_size": len(file.get("tokenizer.ggml.tokens", list)),
        "max_position_embeddings": file.get(f"{kind}.context_length", int),
        "rms_norm_eps": _short(file.get(f"{kind}.attention.layer_norm_rms_epsilon", float)),
        "rope_theta": file.get(f"{kind}.rope.freq_base", float, 10_000.0),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "hidden_act": "silu",
        "dtype": "float32",
        "bos_token_id": file.metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": file.metadata.get("tokenizer.ggml.eos_token_id"),
    }


def _short(value: float) -> float:
    """Return the decimal that a float32 was written as: 1e-05, not 9.99999974e-06."""
    return float(f"{value:.7g}")


def _target_name(file: GgufFile, name: str) -> str:
    match = _TENSOR.fullmatch(name)
    layer, part, suffix = match.groups() if match else (None, "", "")
    target = _TOP.get(part) if layer is None else _LAYER.get(part)
    if target is None:
        raise ModelError(f"{file.path}: tensor {name!r} is not known")
    return f"{target}.{suffix}" if layer is None else f"model.layers.{layer}.{target}.{suffix}"


def _write_weights(file: GgufFile, config: dict[str, Any], target: Path) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in file.tensors.items():
        start, end = end, end + 4 * math.prod(tensor.shape)
        header[_target_name(file, name)] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header).encode()
    # Spaces up to a multiple of 64, so that mapped tensors are aligned as allocated ones are.
    text = text.ljust(-(-(len(text) + 8) // 64) * 64 - 8)
    with target.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for name in file.tensors:
            out.write(_restored(name, file.read(name), config).astype("<f4", copy=False).tobytes())


def _restored(name: str, values: Array, config: dict[str, Any]) -> Array:
    """Undo the reordering of rotary halves that GGUF has in Llama's query and key projections."""
    part = name.split(".")[-2]
    if config["model_type"] != "llama" or part not in ("attn_q", "attn_k"):
        return values
    heads = config["num_attention_heads" if part == "attn_q" else "num_key_value_heads"]
    if values.shape[0] % (2 * heads):
        raise ModelError(f"tensor {name!r} {values.shape} does not divide into {heads} heads")
    pairs: Array = values.reshape(heads, values.shape[0] // heads // 2, 2, *values.shape[1:])
    return np.reshape(pairs.swapaxes(1, 2), values.shape)
