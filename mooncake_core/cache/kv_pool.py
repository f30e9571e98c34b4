"""The paged KV pool of one worker: where the bytes are. Which page is whose is `page_table.py`'s.

    storage  [layers, 2, pages, page_tokens, kv_heads, head_dim], contiguous; index 1: K 0, V 1

A page holds `page_tokens` consecutive tokens of one sequence, in every layer. A sequence whose
pages are consecutive is read through a view, without a copy, so allocators prefer runs. Not
thread-safe by itself: writers of different pages may run at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class KvShape:
    """What one token's KV looks like, in all layers."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    page_tokens: int = 16

    @property
    def token_bytes(self) -> int:
        """Bytes of K or V of one token in one layer."""
        return self.kv_heads * self.head_dim * self.dtype.itemsize

    @property
    def page_bytes(self) -> int:
        """Bytes of K or V of one page in one layer."""
        return self.page_tokens * self.token_bytes

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of K and V of one token in all layers."""
        return 2 * self.layers * self.token_bytes

    def pool_bytes(self, pages: int) -> int:
        """Bytes of a pool of `pages` pages."""
        return 2 * self.layers * pages * self.page_bytes


class KvPool:
    """K and V of all layers in one allocation.

    Args:
        shape: of a token.
        pages: how many.
        storage: [shape.pool_bytes(pages)] uint8, for example over a transfer segment; kept alive.
            None allocates on `device`.
        device: of the storage that is allocated.
    """

    def __init__(
        self,
        shape: KvShape,
        pages: int,
        storage: Tensor | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        if storage is None:
            storage = torch.zeros(shape.pool_bytes(pages), dtype=torch.uint8, device=device)
        assert storage.dtype == torch.uint8 and storage.is_contiguous(), storage.dtype
        assert storage.numel() == shape.pool_bytes(pages), (storage.numel(), shape, pages)
        self.shape = shape
        self.pages = pages
        self._kv = storage.view(shape.dtype).view(
            shape.layers, 2, pages, shape.page_tokens, shape.kv_heads, shape.head_dim
        )

    def keys(self, layer: int) -> Tensor:
        """Return K of `layer`: [pages * page_tokens, kv_heads, head_dim], a view; row = slot."""
        return self._kv[layer, 0].flatten(0, 1)

    def values(self, layer: int) -> Tensor:
        """Return V of `layer`: [pages * page_tokens, kv_heads, head_dim], a view; row = slot."""
        return self._kv[layer, 1].flatten(0, 1)

    def layer(self, layer: int) -> Tensor:
        """Return `layer`: [2, pages, page_tokens, kv_heads, head_dim], a view; K 0, V 1."""
        return self._kv[layer]

    @property
    def address(self) -> int:
        """Address of the first byte."""
        return self._kv.data_ptr()

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole pool."""
        return self.shape.pool_bytes(self.pages)

    def offset(self, layer: int, kv: int, page: int) -> int:
        """Return the byte offset of a page of K (0) or V (1) of a layer, from `address`."""
        return ((layer * 2 + kv) * self.pages + page) * self.shape.page_bytes
