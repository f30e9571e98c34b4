"""Writing small GGUF files, for the tests of their reader."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

F32, Q4_0, Q4_1, Q5_0, Q8_0, F16, BF16 = 0, 2, 3, 6, 8, 1, 30


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def value(item: Any) -> bytes:
    match item:
        case bool():
            return struct.pack("<I?", 7, item)
        case int():
            return struct.pack("<II", 4, item)
        case float():
            return struct.pack("<If", 6, item)
        case str():
            return struct.pack("<I", 8) + string(item)
    assert isinstance(item, list), item
    packed = [value(entry) for entry in item]
    return (
        struct.pack("<I", 9)
        + packed[0][:4]
        + struct.pack("<Q", len(item))
        + b"".join(entry[4:] for entry in packed)
    )


def gguf(metadata: dict[str, Any], tensors: dict[str, tuple[int, tuple[int, ...], bytes]]) -> bytes:
    """Return a file of `tensors`: name -> (type, shape, data)."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, item in metadata.items():
        head += string(key) + value(item)
    body = b""
    for name, (kind, shape, data) in tensors.items():
        head += string(name) + struct.pack("<I", len(shape))
        head += struct.pack(f"<{len(shape)}Q", *shape[::-1]) + struct.pack("<IQ", kind, len(body))
        body += data.ljust(-(-len(data) // 32) * 32, b"\0")
    return head.ljust(-(-len(head) // 32) * 32, b"\0") + body


def tiny_model(path: Path, *, pre: str = "smollm", layers: int = 1, **metadata: Any) -> Path:
    """Write a Llama of 2 heads, 1 KV head, width 8, whose tokens are single characters."""
    words = [chr(code) for code in range(0x21, 0x7F)] + ["<s>", "</s>"]
    generator = np.random.default_rng(0)
    shapes = {"token_embd": (len(words), 8), "output_norm": (8,)}
    for layer in range(layers):
        shapes |= {
            f"blk.{layer}.{name}": shape
            for name, shape in {
                "attn_norm": (8,), "attn_q": (8, 8), "attn_k": (4, 8), "attn_v": (4, 8),
                "attn_output": (8, 8), "ffn_norm": (8,), "ffn_gate": (16, 8), "ffn_up": (16, 8),
                "ffn_down": (8, 16),
            }.items()
        }  # fmt: skip
    tensors = {
        f"{name}.weight": (F32, shape, generator.normal(size=shape).astype("<f4").tobytes())
        for name, shape in shapes.items()
    }
    fields: dict[str, Any] = {
        "general.architecture": "llama",
        "llama.embedding_length": 8,
        "llama.feed_forward_length": 16,
        "llama.block_count": layers,
        "llama.attention.head_count": 2,
        "llama.attention.head_count_kv": 1,
        "llama.context_length": 64,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10_000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": [1] * (len(words) - 2) + [3, 3],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": len(words) - 2,
        "tokenizer.ggml.eos_token_id": len(words) - 1,
        **metadata,
    }
    fields["tokenizer.ggml.tokens"] = [*words[:-3], "ab", *words[-2:]]
    path.write_bytes(gguf(fields, tensors))
    return path
