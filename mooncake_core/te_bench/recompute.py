"""Whether moving a cached prefix beats computing it again. Pure.

Source: Mooncake FAST '25, Equation 2: reuse shortens the time to the first token if

    B / G  >  2 d s / (gqa (a p d + b d^2))

with B the bandwidth, G the rate of computing, d the model's width, s the bytes of a value, gqa the
query heads a KV head serves, p the tokens of the prefix, and a, b = 4, 22.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from mooncake_core.errors import UsageError
from mooncake_core.model_spec import ELEMENT_BYTES, ModelSpec

BLOCK_TOKENS = 256
A, B = 4, 22
GPUS_OF_A_NODE = 8

TFLOPS: Mapping[str, float] = MappingProxyType(
    {
        "a100": 312.0,
        "a800": 312.0,
        "h100": 989.0,
        "h200": 989.0,
        "h800": 989.0,
        "h20": 148.0,
        "l40s": 362.0,
        "l20": 119.5,
        "b200": 2250.0,
    }
)
"""Dense bfloat16 of one GPU, from its maker's data sheet."""


class KvPreset(Struct, frozen=True, kw_only=True):
    """A prefix of a model as te-bench moves it: one batch is one layer of all its blocks."""

    model: str
    dtype: str
    tokens: int
    """Of whole blocks; only those are stored."""
    asked_tokens: int
    """Before they were cut to whole blocks."""
    layers: int
    block_bytes: int
    """One layer of one block of 256 tokens."""
    batch: int
    """Blocks."""
    total_bytes: int
    gpus: str
    tflops: float
    needed_bytes_per_s: float
    """Reuse pays above it."""


def make_preset(spec: ModelSpec, tokens: int, gpus: str) -> KvPreset:
    """Return what a prefix of at least one block is, and the bandwidth at which moving it pays."""
    blocks = tokens // BLOCK_TOKENS
    assert blocks > 0, tokens
    tflops = read_gpus(gpus)
    layer_bytes = spec.bytes_per_token() // spec.layers * BLOCK_TOKENS
    return KvPreset(
        model=spec.name,
        dtype=spec.dtype,
        tokens=blocks * BLOCK_TOKENS,
        asked_tokens=tokens,
        layers=spec.layers,
        block_bytes=layer_bytes,
        batch=blocks,
        total_bytes=blocks * spec.layers * layer_bytes,
        gpus=gpus,
        tflops=tflops,
        needed_bytes_per_s=tflops * 1e12 * bytes_per_flop(spec, blocks * BLOCK_TOKENS),
    )


def bytes_per_flop(spec: ModelSpec, prefix_tokens: int) -> float:
    """Return the right side of Equation 2; d is heads times head_dim."""
    width = spec.heads * spec.head_dim
    gqa = spec.heads / spec.kv_heads
    moved = 2 * width * ELEMENT_BYTES[spec.dtype] / gqa
    return moved / (A * prefix_tokens * width + B * width**2)


def read_gpus(text: str) -> float:
    """Return the TFLOPS that "a800" (a node of eight), "4xh800" or "2496" stand for.

    Raises:
        UsageError: no GPU of that name is known; the message names the nearest.
    """
    if (named := _named(text)) is not None:
        count, name = named
        return count * TFLOPS[name]
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", text) and float(text) > 0:
        return float(text)
    near = difflib.get_close_matches(text.lower(), TFLOPS, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise UsageError(
        f"--gpu: {text!r} is no GPU known here; {hint}Known: {', '.join(TFLOPS)}, "
        "with a count such as 4xh800, or TFLOPS as a number"
    )


def _named(text: str) -> tuple[int, str] | None:
    """Return how many of which GPU are meant; None: it names none that is known."""
    match = re.fullmatch(r"(?:([1-9][0-9]{0,5})x)?([a-z][a-z0-9]*)", text.lower())
    if match is None or match.group(2) not in TFLOPS:
        return None
    return int(match.group(1) or GPUS_OF_A_NODE), match.group(2)


def describe_gpus(text: str) -> str:
    """Return, for people, what read_gpus reads: "8 x a800 (8 x 312 TFLOPS)"."""
    named = _named(text)
    if named is None:
        return f"{text} TFLOPS"
    count, name = named
    return f"{count} x {name} ({count} x {TFLOPS[name]:g} TFLOPS)"


def verdict(preset: KvPreset, row: str, measured_bytes_per_s: float) -> str:
    """Return, for people, whether reuse pays at the bandwidth that a row was measured to have."""
    needed, measured = preset.needed_bytes_per_s / 1e9, measured_bytes_per_s / 1e9
    answer = "pays" if measured_bytes_per_s > preset.needed_bytes_per_s else "does not pay"
    is_cut = preset.tokens != preset.asked_tokens
    cut = f" ({preset.asked_tokens:,} cut to whole blocks of {BLOCK_TOKENS})" if is_cut else ""
    return (
        f"{preset.model}, {preset.tokens:,} tokens{cut}: reuse {answer}: {row} has "
        f"{measured:.2f} GB/s, and {needed:.2f} GB/s are needed\n"
        f"  reading {preset.total_bytes / 1e9:.2f} GB takes "
        f"{preset.total_bytes / measured_bytes_per_s:.3f} s, recomputing on "
        f"{describe_gpus(preset.gpus)} {preset.total_bytes / preset.needed_bytes_per_s:.3f} s"
    )
