"""A worker's KV pages twice: in host memory, for others, and where its model computes.

    others ◄─► host pool, in a segment ◄─ download | upload ─► device pool ◄─► model

A page has one number on both sides, so whoever deals with numbers need not know of the two. On the
CPU both sides are one pool and nothing is copied. Whole pages are copied. That is right because:

- What the model reads is complete on the device: it computed it there, or it was uploaded before.
- A page is uploaded only before anything is computed into it. Loaded blocks are whole pages; the
  last page of a landed prompt is uploaded before decode's first step and never again.
- A page is downloaded only after all of its tokens so far are on the device. Chunks of prefill
  begin where pages begin; behind the end of a prompt a page holds what nobody reads.
- A page of the prefix cache is equal on both sides.

Decode's own tokens are on the device alone: nobody else reads them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mooncake_core.cache.kv_pool import KvPool


def device_pool(host: KvPool, device: torch.device) -> KvPool:
    """Return the pool that a model on `device` computes on: on the CPU `host` itself."""
    if device.type == "cpu":
        return host
    return KvPool(host.shape, host.pages, device=device)


class KvMirror:
    """Two pools of the same shape and pages, or one pool twice.

    Threads may copy at once where their pages differ.

    Args:
        host: in host memory, which others read and write.
        device: what the model computes on.
    """

    def __init__(self, host: KvPool, device: KvPool) -> None:
        assert (host.shape, host.pages) == (device.shape, device.pages), (host, device)
        self.host = host
        self.device = device

    def upload(self, layer: int, pages: Sequence[int]) -> None:
        """Copy `pages` of `layer` to the device; return when they are there."""
        self._copy(self.host, self.device, layer, pages)

    def download(self, layer: int, pages: Sequence[int]) -> None:
        """Copy `pages` of `layer` to the host; return when they are there."""
        self._copy(self.device, self.host, layer, pages)

    def _copy(self, source: KvPool, target: KvPool, layer: int, pages: Sequence[int]) -> None:
        if source is target or not pages:
            return
        read, written = source.layer(layer), target.layer(layer)
        index = torch.tensor(pages)
        copied = read.index_select(1, index.to(read.device)).to(written.device)
        written.index_copy_(1, index.to(written.device), copied)
        if written.is_cuda:
            torch.cuda.current_stream(written.device).synchronize()
