"""What a model is to a worker: one forward pass over a ragged batch and a paged KV pool.

A backend computes; it never decides which pages, which order, or what to send where. Prefill and
decode use the same call: a prefill chunk is one sequence with many new tokens, a decode step is
many sequences with one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from mooncake_core.cache.kv_pool import KvPool, KvShape


@dataclass(frozen=True, kw_only=True)
class SequenceInput:
    """One sequence's share of a forward pass."""

    pages: Sequence[int]
    """Pages in token order; cover at least start + length tokens."""
    start: int
    """Tokens whose KV is in the pages already."""
    length: int
    """New tokens, at positions [start, start + length)."""


class LayerHooks(Protocol):
    """Called on the computing thread around each layer's attention; may block."""

    def before_layer(self, layer: int) -> None:
        """Return when the KV of earlier tokens of `layer` is in the pool."""
        ...

    def after_layer(self, layer: int) -> None:
        """Note that the KV of the new tokens of `layer` is in the pool."""
        ...


class Model(Protocol):
    """A causal language model over a paged KV pool. One thread at a time."""

    name: str
    context_tokens: int
    vocab: int
    device: torch.device
    kv_shape: KvShape
    weights_digest: str
    """Hex; over configuration and weights."""
    kernel_class: str
    """Equal iff the results are bit-equal, for example "native-cpu"."""

    def forward(
        self,
        tokens: Tensor,
        sequences: Sequence[SequenceInput],
        pool: KvPool,
        hooks: LayerHooks | None = None,
    ) -> Tensor:
        """Compute new tokens, write their KV into the pool, return logits.

        Args:
            tokens: [sum of lengths] int64, sequence after sequence.
            sequences: in the order of `tokens`.
            pool: on the model's device; pages of the sequences are overwritten.
            hooks: see LayerHooks.

        Returns:
            [len(sequences), vocab] float32: logits after the last new token of each sequence.
        """
        ...
