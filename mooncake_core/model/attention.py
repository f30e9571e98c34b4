"""Attention over the paged pool, for every backend.

What a sequence's attention gives depends on its positions, its queries and the bytes of its keys
and values alone, never on where the pages lie or who else is in the batch: each sequence is
computed by itself, over a view when its pages follow each other and over a copy in token order
otherwise. Query heads that share a KV head are laid along the query axis, so keys and values are
never repeated.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from mooncake_core.cache.kv_pool import KvPool
from mooncake_core.model.base import LayerHooks, SequenceInput

_TILE_TOKENS = 256
"""Queries at a time: bounds the mask, and spares later keys. Tiles are cut at multiples of it."""


@dataclass(frozen=True, kw_only=True)
class _Span:
    """Where a sequence's rows and keys are."""

    rows: slice
    """Of the forward pass."""
    start: int
    end: int
    first_slot: int | None
    """Set when the pages follow each other: then slots are first_slot + position."""
    pages: Tensor | None
    """Otherwise: the pages up to `end`."""


class PagedBatch:
    """The sequences of one forward pass, as its layers need them.

    Args:
        sequences: see SequenceInput.
        pool: written and read by `attend`.
        device: of the model.
        hooks: called by `attend`.
    """

    def __init__(
        self,
        sequences: Sequence[SequenceInput],
        pool: KvPool,
        device: torch.device,
        hooks: LayerHooks | None,
    ) -> None:
        self._pool = pool
        self._hooks = hooks
        self._device = device
        self._masks: dict[tuple[int, int, int, torch.dtype], Tensor] = {}
        self._spans: list[_Span] = []
        slots: list[int] = []
        positions: list[int] = []
        for sequence in sequences:
            span = self._span(sequence, len(slots))
            self._spans.append(span)
            positions += range(span.start, span.end)
            slots += _slots(sequence, pool.shape.page_tokens)
        self._slots = torch.tensor(slots, device=device)
        self.positions = torch.tensor(positions, device=device)
        self.last_rows = torch.tensor([span.rows.stop - 1 for span in self._spans], device=device)

    def _span(self, sequence: SequenceInput, row: int) -> _Span:
        end = sequence.start + sequence.length
        page_tokens = self._pool.shape.page_tokens
        pages = list(sequence.pages[: -(-end // page_tokens)])
        assert sequence.start >= 0 and sequence.length > 0, sequence
        assert len(pages) * page_tokens >= end, (sequence, page_tokens)
        assert all(0 <= page < self._pool.pages for page in pages), (pages, self._pool.pages)
        is_run = pages == list(range(pages[0], pages[0] + len(pages)))
        return _Span(
            rows=slice(row, row + sequence.length),
            start=sequence.start,
            end=end,
            first_slot=pages[0] * page_tokens if is_run else None,
            pages=None if is_run else torch.tensor(pages, device=self._device),
        )

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, *, scale: float
    ) -> Tensor:
        """Write the new keys and values into the pool; return the attention to all up to them.

        Args:
            layer: from 0.
            queries: [tokens, heads, head_dim].
            keys: [tokens, kv_heads, head_dim].
            values: as `keys`.
            scale: of the scores.

        Returns:
            [tokens, heads, head_dim].
        """
        if self._hooks is not None:
            self._hooks.before_layer(layer)
        all_keys, all_values = self._pool.keys(layer), self._pool.values(layer)
        all_keys.index_copy_(0, self._slots, keys)
        all_values.index_copy_(0, self._slots, values)
        if self._hooks is not None:
            if self._device.type == "cuda":
                torch.cuda.current_stream(self._device).synchronize()
            self._hooks.after_layer(layer)
        parts = []
        for span in self._spans:
            own_keys, own_values = self._gather(all_keys, span), self._gather(all_values, span)
            end = span.start
            for tile in torch.split(queries[span.rows], _tile_lengths(span.start, span.end)):
                end += len(tile)
                parts.append(self._attend_tile(tile, own_keys[:end], own_values[:end], scale))
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def _gather(self, cache: Tensor, span: _Span) -> Tensor:
        if span.first_slot is not None:
            return cache[span.first_slot : span.first_slot + span.end]
        assert span.pages is not None, span
        pages = cache.view(self._pool.pages, -1, *cache.shape[1:])
        return pages.index_select(0, span.pages).flatten(0, 1)[: span.end]

    def _attend_tile(self, queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        tokens, heads, head_dim = queries.shape
        kv_heads = keys.shape[1]
        group = heads // kv_heads
        folded = queries.view(tokens, kv_heads, group, head_dim).permute(1, 2, 0, 3)
        out = scaled_dot_product_attention(
            folded.reshape(1, kv_heads, group * tokens, head_dim),
            keys.transpose(0, 1).unsqueeze(0),
            values.transpose(0, 1).unsqueeze(0),
            attn_mask=self._mask(tokens, len(keys), group, queries.dtype),
            scale=scale,
        )
        return out.view(kv_heads, group, tokens, head_dim).permute(2, 0, 1, 3).flatten(1, 2)

    def _mask(self, tokens: int, keys: int, group: int, dtype: torch.dtype) -> Tensor | None:
        """Return [group * tokens, keys]: -inf where a key is later than the query."""
        if tokens == 1:
            return None
        key = (tokens, keys, group, dtype)
        if key not in self._masks:
            mask = torch.full((tokens, keys), -torch.inf, dtype=dtype, device=self._device)
            self._masks[key] = mask.triu_(keys - tokens + 1).repeat(group, 1)
        return self._masks[key]


def _slots(sequence: SequenceInput, page_tokens: int) -> list[int]:
    pages = sequence.pages
    return [
        pages[position // page_tokens] * page_tokens + position % page_tokens
        for position in range(sequence.start, sequence.start + sequence.length)
    ]


def _tile_lengths(start: int, end: int) -> list[int]:
    cuts = [start, *range((start // _TILE_TOKENS + 1) * _TILE_TOKENS, end, _TILE_TOKENS), end]
    return [after - before for before, after in itertools.pairwise(cuts)]
